// data/deck_rules.hpp — what the samples of a deck's kind of model are, with what that
// kind needs of the corpora: special tokens of their tokenizer, and sentences.
#ifndef TRIREME_DATA_DECK_RULES_HPP_
#define TRIREME_DATA_DECK_RULES_HPP_

#include <memory>
#include <span>
#include <string>

#include "config/deck.hpp"
#include "data/corpus.hpp"
#include "data/sample_index.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

// Of corpora of one tokenizer, one at least. InputError, which names the corpus, where
// one cannot give such samples.
SampleRules rules_of(const config::Deck& deck,
                     std::span<const std::shared_ptr<const Corpus>> corpora);

// InputError where the deck's samples are pairs of segments and the corpus has no
// sentences to make them of.
void require_sentences(const config::Deck& deck, const Corpus& corpus);

// InputError where none of this part's samples can have anything that counts: no document
// has tokens enough. That few have is no error, nor that those which have lie behind the
// last whole sample. `name` ("train") is that of the part, for messages.
void require_counted(const config::Deck& deck, const Corpus& corpus,
                     const TokenRange& part, const std::string& name);

// InputError where the deck's samples are pairs of segments of which this part gives none
// to learn from: no document has two sentences, or one alone has text where every other
// pair takes its second segment from another one, so that all have one answer.
void require_pairs(const config::Deck& deck, const Corpus& corpus, const TokenRange& part,
                   const std::string& name);

}  // namespace trireme::data

#endif  // TRIREME_DATA_DECK_RULES_HPP_

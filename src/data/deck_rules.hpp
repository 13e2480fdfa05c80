// data/deck_rules.hpp — what the samples of a deck's kind of model are, with what that
// kind needs of the corpora: special tokens of their tokenizer, and sentences.
#ifndef TRIREME_DATA_DECK_RULES_HPP_
#define TRIREME_DATA_DECK_RULES_HPP_

#include <memory>
#include <span>

#include "config/deck.hpp"
#include "data/corpus.hpp"
#include "data/sample_rules.hpp"

namespace trireme::data {

// Of corpora of one tokenizer, one at least. InputError, which names the corpus, where
// one cannot give such samples.
SampleRules rules_of(const config::Deck& deck,
                     std::span<const std::shared_ptr<const Corpus>> corpora);

// InputError where the deck's samples are pairs of segments and the corpus has no
// sentences to make them of.
void require_sentences(const config::Deck& deck, const Corpus& corpus);

}  // namespace trireme::data

#endif  // TRIREME_DATA_DECK_RULES_HPP_

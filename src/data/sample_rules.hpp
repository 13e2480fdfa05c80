// data/sample_rules.hpp — what a sample of a run is: fixed by its deck, once, and the
// same for the training, for validation and for evaluation.
//
// A kind of samples is a struct of rules here, and a maker of them (sample_maker.hpp).
// How they are made has a version, which rises with every change by which a run would see
// other samples: checkpoints keep it, as tests keep a checksum of what it makes.
#ifndef TRIREME_DATA_SAMPLE_RULES_HPP_
#define TRIREME_DATA_SAMPLE_RULES_HPP_

#include <cstdint>
#include <memory>
#include <variant>

#include "base/types.hpp"
#include "config/enums.hpp"
#include "data/masked_vocabulary.hpp"
#include "data/sample_index.hpp"

namespace trireme::data {

class Corpus;

// A language model's: each label is the token behind its position's own. The fields of
// fields.cpp.
struct NextTokenRules {
  static constexpr int kVersion = 1;
  index_t sequence = 0;
  // Nothing is learned from predicting past the end of a document.
  bool mask_end_of_document = false;
};

// T5's (Raffel et al. 2020): spans of a text are hidden, and are to be found from the
// rest. span_maker.hpp
struct SpanRules {
  static constexpr int kVersion = 1;
  index_t source = 0;  // positions of the encoder's stream, and of the decoder's
  index_t target = 0;
  double density = 0.15;     // the part of the tokens that is hidden
  double mean_length = 3.0;  // of a span
  // Texts are windows, whatever documents are in them; otherwise the part of one document
  // in the window, of any length.
  bool pack = true;
  // Ids that no text has. Sentinel i, i = 0, 1 ... sentinels - 1, is first_sentinel - i.
  std::int32_t padding = 0;
  std::int32_t end = 1;
  std::int32_t first_sentinel = 0;
  index_t sentinels = 0;
};

// Words of an n-gram, at most: with them the least common multiple of all n has 32 bits.
inline constexpr index_t kMostNgrams = 16;

// BERT's (Devlin et al. 2019): some tokens of a text are masked, and are to be found from
// the rest. masked_maker.hpp
struct MaskedRules {
  // By version 1 the windows of every corpus were as long as the documents of all corpora
  // of training on average.
  static constexpr int kVersion = 2;
  index_t sequence = 0;
  index_t predictions = 0;  // tokens that are masked at most
  double mask_prob = 0.15;  // the part of the tokens that is masked
  // The part of the samples whose length is drawn.
  double short_seq_prob = 0.0;
  bool whole_words = true;  // all pieces of a word are masked, or none
  index_t max_ngrams = 1;   // words that are masked together, at most
  // Two segments, and which kind of pair they are is to be said.
  config::Pairs pairs = config::Pairs::none;
  // Texts are windows, whatever documents are in them; otherwise a part of one document.
  bool pack = false;
  bool reset_position_ids = false;  // positions begin anew with each document of a window
  // Tokens of a window of a document's text. 0: in each corpus as many as its documents
  // have on average, each with its end, so that an epoch has as many samples as there are
  // documents, or more where these are longer than a sample.
  index_t window = 0;
  std::shared_ptr<const MaskedVocabulary> vocabulary;

  index_t special_tokens() const { return pairs == config::Pairs::none ? 2 : 3; }
  // Tokens of text that a sample has room for.
  index_t text() const { return sequence - special_tokens(); }
  // And those without which it is none.
  index_t least_text() const { return pairs == config::Pairs::none ? 1 : 2; }
};

struct SampleRules {
  Windows windows;         // that corpora are cut into, a sample from each; the longest
  std::uint64_t seed = 0;  // of their order, and of what is drawn in them
  std::variant<NextTokenRules, SpanRules, MaskedRules> kind;
  // Whether a corpus' windows are as long as its documents are on average, and `windows`
  // at most.
  bool have_documents_length = false;

  // Those that this corpus is cut into: they do not depend on what others there are.
  Windows windows_in(const Corpus& corpus) const;
  int version() const;  // of the rules of this kind
};

// The windows follow from the kind. InputError where it does not fit the model.
SampleRules sample_rules(const NextTokenRules& rules, std::uint64_t seed);
SampleRules sample_rules(const SpanRules& rules, std::uint64_t seed);
SampleRules sample_rules(const MaskedRules& rules, std::uint64_t seed);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_RULES_HPP_

// data/sample_rules.hpp — what a sample of a run is: fixed by its deck, once, and the
// same for the training, for validation and for evaluation.
//
// A kind of samples is a struct of rules here, and a maker of them (sample_maker.hpp).
#ifndef TRIREME_DATA_SAMPLE_RULES_HPP_
#define TRIREME_DATA_SAMPLE_RULES_HPP_

#include <cstdint>
#include <variant>

#include "base/types.hpp"
#include "data/sample_index.hpp"

namespace trireme::data {

// A language model's: each label is the token behind its position's own. The fields of
// fields.cpp.
struct NextTokenRules {
  index_t sequence = 0;
  // Nothing is learned from predicting past the end of a document.
  bool mask_end_of_document = false;
};

// T5's (Raffel et al. 2020): spans of a text are hidden, and are to be found from the
// rest. span_maker.hpp
struct SpanRules {
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

struct SampleRules {
  Windows windows;         // that corpora are cut into, a sample from each
  std::uint64_t seed = 0;  // of their order, and of what is drawn in them
  std::variant<NextTokenRules, SpanRules> kind;
};

// The windows follow from the kind. InputError where it does not fit the model.
SampleRules sample_rules(const NextTokenRules& rules, std::uint64_t seed);
SampleRules sample_rules(const SpanRules& rules, std::uint64_t seed);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SAMPLE_RULES_HPP_

// data/span_lengths.hpp — how many tokens of a text T5 hides, and in how many spans.
#ifndef TRIREME_DATA_SPAN_LENGTHS_HPP_
#define TRIREME_DATA_SPAN_LENGTHS_HPP_

#include "base/types.hpp"

namespace trireme::data {

struct SpanLengths {
  index_t hidden = 0;  // tokens
  index_t spans = 0;
  index_t source = 0;  // the other tokens, a sentinel for each span, and the end
  index_t target = 0;  // the hidden tokens, each span behind its sentinel, and the end
};

// Of a text of so many tokens. A text of one token has nothing hidden. Example: of 568
// tokens 85 are hidden, in 28 spans; the source is 512 tokens and the target 114.
SpanLengths span_lengths(index_t tokens, double density, double mean_length);

// The longest text whose source is at most `source` tokens; 0 where there is none.
// `density` is below 1.
index_t longest_text(index_t source, double density, double mean_length);

}  // namespace trireme::data

#endif  // TRIREME_DATA_SPAN_LENGTHS_HPP_

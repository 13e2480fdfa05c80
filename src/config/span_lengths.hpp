// config/span_lengths.hpp — how long a window of text becomes by T5's span corruption:
// the deck's default of the decoder's length and the makers of samples take it from here.
//
// Of a window of L tokens round(L p) are noise, in spans of `mean` tokens on average. The
// encoder reads the others, one sentinel for each span, and the end of the text; the
// decoder writes each span behind its sentinel, and the end. Worked example, p = 0.15 and
// mean = 3: of 568 tokens 85 are noise, in 28 spans; the encoder has 483 + 28 + 1 = 512
// positions, the decoder 85 + 28 + 1 = 114. Reference: Raffel et al. 2020, section 3.1.4,
// and compute_input_and_target_lengths of their program.
#ifndef TRIREME_CONFIG_SPAN_LENGTHS_HPP_
#define TRIREME_CONFIG_SPAN_LENGTHS_HPP_

#include "base/types.hpp"

namespace trireme::config {

struct SpanLengths {
  index_t window = 0;  // tokens of the text
  index_t noise = 0, spans = 0;
  index_t source = 0, target = 0;  // positions of the encoder and of the decoder
};

// A window of two tokens becomes a source of so many, a shorter one cannot be corrupted.
inline constexpr index_t kShortestSource = 3;

// Of a window of at least 2 tokens. Every window has noise, text and a span, and there
// are no more spans than tokens of either to part them. T5's program sees to this where
// it draws spans, and not where it computes lengths: these are one position short there
// for windows with a single token of noise.
SpanLengths span_lengths(index_t window, double density, double mean);

// Of the longest window whose source fits into `sequence` positions, at least
// kShortestSource.
SpanLengths longest_spans(index_t sequence, double density, double mean);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_SPAN_LENGTHS_HPP_

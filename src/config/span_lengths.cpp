// config/span_lengths.cpp — see span_lengths.hpp.
#include "config/span_lengths.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace trireme::config {
namespace {

// To the nearest, halves to the even one, as Python's round() in T5's program.
index_t rounded(double value) {
  return static_cast<index_t>(std::nearbyint(value));
}

}  // namespace

SpanLengths span_lengths(index_t window, double density, double mean) {
  TRIREME_REQUIRE(
      window >= 2 && density > 0.0 && density < 1.0 && mean >= 1.0,
      "window {}, density {}, mean length {}: 2 tokens or more, a probability "
      "and 1 or more are expected",
      window, density, mean);
  SpanLengths lengths;
  lengths.window = window;
  lengths.noise =
      std::clamp<index_t>(rounded(static_cast<double>(window) * density), 1, window - 1);
  const index_t text = window - lengths.noise;
  lengths.spans = std::clamp<index_t>(rounded(static_cast<double>(lengths.noise) / mean),
                                      1, std::min(lengths.noise, text));
  lengths.source = text + lengths.spans + 1;
  lengths.target = lengths.noise + lengths.spans + 1;
  return lengths;
}

SpanLengths longest_spans(index_t sequence, double density, double mean) {
  TRIREME_REQUIRE(sequence >= kShortestSource,
                  "a sequence of {} holds no corrupted window; {} or more is expected",
                  sequence, kShortestSource);
  // A token more makes the source no shorter: it is noise or text, and spans do not
  // become fewer.
  index_t fits = 2, too_long = 3;
  const auto source = [&](index_t window) {
    return span_lengths(window, density, mean).source;
  };
  constexpr index_t kLongest = index_t{1} << 40;
  while (too_long < kLongest && source(too_long) <= sequence) {
    fits = too_long;
    too_long *= 2;
  }
  while (too_long - fits > 1) {
    const index_t middle = fits + (too_long - fits) / 2;
    (source(middle) <= sequence ? fits : too_long) = middle;
  }
  return span_lengths(fits, density, mean);
}

}  // namespace trireme::config

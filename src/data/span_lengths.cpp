// data/span_lengths.cpp — see span_lengths.hpp.
#include "data/span_lengths.hpp"

#include <algorithm>
#include <cmath>

namespace trireme::data {

namespace {

// To even where it is half way, as T5's own code does in Python.
index_t rounded(double value) {
  return static_cast<index_t>(std::nearbyint(value));
}

}  // namespace

SpanLengths span_lengths(index_t tokens, double density, double mean_length) {
  if (tokens < 2) return {.source = tokens + 1, .target = 1};
  const index_t hidden =
      std::clamp<index_t>(rounded(static_cast<double>(tokens) * density), 1, tokens - 1);
  // Between two spans is a kept token at least, and one before the first.
  const index_t spans =
      std::clamp<index_t>(rounded(static_cast<double>(hidden) / mean_length), 1,
                          std::min(hidden, tokens - hidden));
  return {.hidden = hidden,
          .spans = spans,
          .source = tokens - hidden + spans + 1,
          .target = hidden + spans + 1};
}

// One token more makes neither source nor target shorter.
index_t longest_text(index_t source, double density, double mean_length) {
  index_t tokens = 1;
  while (span_lengths(tokens + 1, density, mean_length).source <= source) ++tokens;
  return source < 3 ? 0 : tokens;
}

}  // namespace trireme::data

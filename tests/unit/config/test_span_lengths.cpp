// Lengths of corrupted windows: T5's own numbers, and the loop of its program.
#include "config/span_lengths.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace trireme::config {
namespace {

constexpr double kDensity = 0.15, kMean = 3.0;

// compute_input_and_target_lengths of the program, with Python's round().
struct Lengths {
  index_t window = 0, source = 0, target = 0;
};
Lengths lengths_of_t5(index_t inputs, double density, double mean) {
  const auto lengths = [&](index_t tokens) {
    const auto noise =
        static_cast<index_t>(std::nearbyint(static_cast<double>(tokens) * density));
    const auto spans =
        static_cast<index_t>(std::nearbyint(static_cast<double>(noise) / mean));
    return Lengths{tokens, tokens - noise + spans + 1, noise + spans + 1};
  };
  index_t tokens = inputs;
  while (lengths(tokens + 1).source <= inputs) ++tokens;
  return lengths(tokens);
}

TEST(SpanLengths, AsT5) {
  const SpanLengths full = longest_spans(512, kDensity, kMean);
  EXPECT_EQ(full.window, 568);
  EXPECT_EQ(full.noise, 85);
  EXPECT_EQ(full.spans, 28);
  EXPECT_EQ(full.source, 512);
  EXPECT_EQ(full.target, 114);
  // Below 10 positions there is one token of noise, whose span T5's lengths leave out.
  for (index_t inputs = 10; inputs <= 4096; ++inputs) {
    const Lengths theirs = lengths_of_t5(inputs, kDensity, kMean);
    const SpanLengths ours = longest_spans(inputs, kDensity, kMean);
    ASSERT_EQ(ours.window, theirs.window) << inputs;
    ASSERT_EQ(ours.source, theirs.source) << inputs;
    ASSERT_EQ(ours.target, theirs.target) << inputs;
  }
  for (const auto& [density, mean] : {std::pair{0.15, 8.0}, {0.5, 3.0}, {0.25, 2.0}}) {
    for (index_t inputs = 64; inputs <= 1024; ++inputs) {
      const Lengths theirs = lengths_of_t5(inputs, density, mean);
      const SpanLengths ours = longest_spans(inputs, density, mean);
      ASSERT_EQ(ours.window, theirs.window) << inputs << " " << density << " " << mean;
      ASSERT_EQ(ours.target, theirs.target) << inputs << " " << density << " " << mean;
    }
  }
}

// Spans can be drawn of every window, and none that is longer fits.
TEST(SpanLengths, CanBeDrawn) {
  for (const double density : {1e-6, 0.15, 0.5, 0.9, 0.999999}) {
    for (const double mean : {1.0, 1.5, 3.0, 1e6}) {
      for (index_t sequence = kShortestSource; sequence < 200; ++sequence) {
        const SpanLengths full = longest_spans(sequence, density, mean);
        SCOPED_TRACE(fmt::format("{} {} {}", density, mean, sequence));
        ASSERT_GE(full.spans, 1);
        ASSERT_LE(full.spans, full.noise);
        ASSERT_LE(full.spans, full.window - full.noise);
        ASSERT_EQ(full.source, full.window - full.noise + full.spans + 1);
        ASSERT_EQ(full.target, full.noise + full.spans + 1);
        ASSERT_LE(full.source, sequence);
        for (index_t more = 1; more < 40; ++more) {
          ASSERT_GT(span_lengths(full.window + more, density, mean).source, sequence);
        }
      }
    }
  }
  EXPECT_EQ(longest_spans(3, kDensity, kMean).target, 3);
  EXPECT_THROW(longest_spans(2, kDensity, kMean), Error);
  EXPECT_THROW(span_lengths(1, kDensity, kMean), Error);
  EXPECT_THROW(span_lengths(10, 1.0, kMean), Error);
  EXPECT_THROW(span_lengths(10, kDensity, 0.5), Error);
}

// Who has room for the longest window has it for every other.
TEST(SpanLengths, OfMoreTextAreNoShorter) {
  for (const double density : {0.001, 0.15, 0.5, 0.9, 0.999}) {
    for (const double mean : {1.0, 1.5, 3.0, 50.0}) {
      SpanLengths before = span_lengths(2, density, mean);
      for (index_t tokens = 3; tokens < 700; ++tokens) {
        const SpanLengths lengths = span_lengths(tokens, density, mean);
        ASSERT_GE(lengths.source, before.source) << density << " " << mean;
        ASSERT_GE(lengths.target, before.target) << density << " " << mean;
        before = lengths;
      }
    }
  }
}

TEST(SpanLengths, OfTheLongestSamples) {
  const index_t sequence = index_t{1} << 26;
  const SpanLengths full = longest_spans(sequence, kDensity, kMean);
  EXPECT_LE(full.source, sequence);
  EXPECT_GT(span_lengths(full.window + 2, kDensity, kMean).source, sequence);
}

}  // namespace
}  // namespace trireme::config

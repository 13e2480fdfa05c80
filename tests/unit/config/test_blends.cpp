// Weights of blended corpora: all have one, or none has.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;

DeckError error_of(const std::string& train) {
  const auto errors = errors_with({"data.train=" + train});
  EXPECT_EQ(errors.size(), 1u) << format_errors(errors);
  return errors.empty() ? DeckError{} : errors[0];
}

TEST(Blends, WeightsAllOrNone) {
  const auto weights = [](const std::string& train) {
    std::vector<double> all;
    for (const WeightedPath& corpus : small_with({"data.train=" + train}).data.train) {
      all.push_back(corpus.weight);
    }
    return all;
  };
  using Weights = std::vector<double>;
  EXPECT_EQ(weights("[a.h5, {path: b.h5}, c.h5]"), Weights(3, 1.0));
  EXPECT_EQ(weights("[{path: a.h5, weight: 3}, {path: b.h5, weight: 0.5}]"),
            (Weights{3.0, 0.5}));
  EXPECT_EQ(weights("[{path: a.h5, weight: 3}]"), Weights{3.0});

  const DeckError error = error_of("[{path: a.h5, weight: 3}, b.h5, {path: c.h5}]");
  EXPECT_EQ(error.key, "data.train");
  EXPECT_EQ(error.what,
            "has 3 corpora and 1 weight: none for b.h5, c.h5; all have one, or none has "
            "for equal shares of the samples");
  EXPECT_EQ(error.fix,
            "data.train: [{path: a.h5, weight: 3}, {path: b.h5, weight: 1}, {path: c.h5, "
            "weight: 1}]");
  // As it was written; what a variable stands for is not its writer's text.
  EXPECT_THAT(error_of("[{path: a.h5, weight: 3e1}, ~/b.h5]").fix,
              HasSubstr("[{path: a.h5, weight: 3e1}, {path: \"~/b.h5\", weight: 1}]"));
  EXPECT_EQ(error_of("[{path: a.h5, weight: 3}, $HOME/b.h5]").fix, "");
  EXPECT_THAT(error_of("[{path: a.h5, weight: 3}, b, c, d, e, f, g]").what,
              HasSubstr("has 7 corpora and 1 weight: none for b, c, d, e, and 2 more;"));
}

// A resolved deck has all weights, so that the decks of earlier versions are read as they
// were meant.
TEST(Blends, ResolvedDecksHaveAllWeights) {
  const std::string text = resolved_text(small_with({"data.train=[a.h5, b.h5]"}));
  EXPECT_THAT(text, HasSubstr("  train: [{path: a.h5, weight: 1}, {path: b.h5, weight: "
                              "1}]\n"));
  EXPECT_EQ(resolved_text(parse_resolved(text)), text);
}

TEST(Blends, WeightsAreAboveZero) {
  for (const char* weight : {"0", "-1", "0.0"}) {
    const DeckError error = error_of(
        fmt::format("[{{path: a.h5, weight: 2}}, {{path: b.h5, weight: {}}}]", weight));
    EXPECT_EQ(
        error.what,
        fmt::format("weight: {} is too small; a corpus of which no sample is wanted "
                    "is left out of the list",
                    weight));
    EXPECT_THAT(error.allowed, HasSubstr("weights above 0"));
  }
  EXPECT_THAT(error_of("[{path: a.h5, weight: much}]").what,
              HasSubstr("weight: much is not a number"));
}

}  // namespace
}  // namespace trireme::config

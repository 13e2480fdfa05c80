// Weights of blended corpora: all have one, or none has; what is proposed for a list that
// is wrong can be taken as it is.
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
    EXPECT_EQ(error.fix, "data.train: [{path: a.h5, weight: 2}]");
  }
  // Nothing would be left.
  EXPECT_EQ(error_of("[{path: a.h5, weight: 0}]").fix, "");
}

// What else a weight may be is said as what it is, and only what was meant is proposed.
TEST(Blends, WeightsAreNumbers) {
  struct Case {
    const char *weight, *what, *meant;
  };
  for (const auto& [weight, what, meant] :
       {Case{"'3'", "\"3\" is text in quotes; a number is wanted", "3"},
        {"'0'", "\"0\" is text in quotes; a number is wanted", nullptr},
        {"[4]", "[4] is a list; a number is wanted", "4"},
        {"['5e0']", "[\"5e0\"] is a list; a number is wanted", "5e0"},
        {"", "is empty; a number is wanted", "1"},
        {"much", "much is not a number; a finite one above 0 is wanted", ""},
        {".inf", ".inf is not a number; a finite one above 0 is wanted", ""},
        {"1e999", "1e999 is not a number; a finite one above 0 is wanted", ""},
        {"'much'", "\"much\" is text in quotes; a number is wanted", ""},
        {"[1, 2]", "[1, 2] is a list; a number is wanted", ""},
        {"{a: 1}", "{a: 1} is a section with keys; a number is wanted", ""}}) {
    SCOPED_TRACE(weight);
    const DeckError error = error_of(
        fmt::format("[{{path: a.h5, weight: 2}}, {{path: b.h5, weight: {}}}]", weight));
    EXPECT_EQ(error.what, fmt::format("weight: {}", what));
    const std::string second =
        meant == nullptr ? "" : fmt::format(", {{path: b.h5, weight: {}}}", meant);
    const bool has_fix = meant == nullptr || *meant != '\0';
    EXPECT_EQ(error.fix,
              has_fix ? "data.train: [{path: a.h5, weight: 2}" + second + "]" : "");
  }
}

// The fix replaces all of the list: it says all of it, or there is none.
TEST(Blends, FixesAreWholeLists) {
  const auto fix = [](const std::string& train) {
    const std::string text = error_of(train).fix;
    const std::string key = "data.train: ";
    EXPECT_TRUE(text.empty() || text.starts_with(key)) << text;
    if (text.empty()) return text;
    const std::string list = text.substr(key.size());
    const auto left = errors_with({"data.train=" + list});
    EXPECT_TRUE(left.empty()) << format_errors(left);
    return list;
  };
  EXPECT_EQ(fix("[{path: a.h5, weigth: 2}, {pth: b.h5, weight: 3}]"),
            "[{path: a.h5, weight: 2}, {path: b.h5, weight: 3}]");
  // Several mistakes at once, in corpora that are named in other ways.
  EXPECT_EQ(fix("[{weight: '3', path: \"b, c.h5\"}, d.h5, {path: e.h5, weight: -1}]"),
            "[{weight: 3, path: \"b, c.h5\"}, {path: d.h5, weight: 1}]");
  EXPECT_EQ(fix("[{path: \"none\", weigth: 1}]"), "[{path: \"none\", weight: 1}]");
  EXPECT_EQ(fix("[~nobody-here/a.h5, {path: b.h5}]"),
            "[{path: \"./~nobody-here/a.h5\", weight: 1}, {path: b.h5, weight: 1}]");
  for (const char* train :
       {"[{weight: 1}]", "[{path: a.h5, weight: 1}, {weight: '1'}]",
        "[{path: a.h5, weight: 3, weigth: 4}]", "[{path: a.h5, weight: 0, weight: 4}, b]",
        "[{path: a.h5, colour: 3}]", "[{path: [a.h5], weight: 3}]", "[[a.h5], b.h5]",
        "[a.h5, '']", "{a: x.h5, b: y.h5}", "{path: $HOME/a.h5}",
        "[{path: $HOME/a.h5, weigth: 3}]", "[a, b, c, d, {path: e, weigth: 3}]"}) {
    EXPECT_EQ(fix(train), "") << train;
  }
  EXPECT_EQ(error_of("[{weight: 1}]").what, "has a corpus without path");
}

}  // namespace
}  // namespace trireme::config

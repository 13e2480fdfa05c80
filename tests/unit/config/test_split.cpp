// parallel.split: which layers the chunks of an encoder and a decoder have.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/check.hpp"
#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Of so many layers each, with so many stages.
std::vector<std::string> t5(int layers, int decoder_layers, int pipeline,
                            const std::vector<std::string>& more) {
  std::vector<std::string> all = {"model.kind=t5", fmt::format("model.layers={}", layers),
                                  fmt::format("model.decoder_layers={}", decoder_layers),
                                  fmt::format("parallel.pipeline={}", pipeline)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// What is left over goes to chunks with neither the embedding nor the head.
TEST(Split, DealsEachSideEvenly) {
  EXPECT_THAT(stages_of_split(6, 6, 2, 1), ElementsAre(6, 6));
  EXPECT_THAT(stages_of_split(6, 6, 4, 2), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(stages_of_split(7, 5, 5, 3), ElementsAre(2, 2, 3, 3, 2));
  EXPECT_THAT(stages_of_split(8, 8, 6, 3), ElementsAre(2, 3, 3, 3, 3, 2));
  EXPECT_THAT(stages_of_split(12, 12, 4, 1), ElementsAre(12, 4, 4, 4));
  EXPECT_THAT(stages_of_split(12, 12, 4, 3), ElementsAre(4, 4, 4, 12));
  EXPECT_THAT(stages_of_split(2, 2, 6, 3), ElementsAre(0, 1, 1, 1, 1, 0));
  EXPECT_THAT(stages_of_split(1, 1, 2, 1), ElementsAre(1, 1));
  EXPECT_THAT(stages_of_split(24, 3, 8, 6), ElementsAre(4, 4, 4, 4, 4, 4, 2, 1));
}

// All that is right is dealt so that nothing is left out and no chunk has nothing.
TEST(Split, IsRightOrRefused) {
  for (int layers = 1; layers <= 4; ++layers) {
    for (int decoder_layers = 1; decoder_layers <= 4; ++decoder_layers) {
      for (int pipeline = 2; pipeline <= 11; ++pipeline) {
        for (int split = 1; split <= 12; ++split) {
          const auto overrides = t5(layers, decoder_layers, pipeline,
                                    {fmt::format("parallel.split={}", split)});
          SCOPED_TRACE(fmt::format("{}", fmt::join(overrides, " ")));
          const int of_decoder = pipeline - split;
          const bool is_right =
              of_decoder > 0 && split <= layers + 1 && of_decoder <= decoder_layers + 1;
          const auto errors = errors_with(overrides);
          ASSERT_EQ(errors.empty(), is_right) << format_errors(errors);
          ASSERT_LE(errors.size(), 1u);
          if (!is_right) continue;
          // As a list it is right as well.
          const auto stages = small_with(overrides).parallel.stages;
          const auto as_list =
              t5(layers, decoder_layers, pipeline,
                 {fmt::format("parallel.stages=[{}]", fmt::join(stages, ", "))});
          ASSERT_THAT(errors_with(as_list), IsEmpty());
        }
      }
    }
  }
}

TEST(Split, IsStagesInTheResolvedDeck) {
  const Deck deck = small_with(t5(6, 6, 4, {"parallel.split=1"}));
  EXPECT_THAT(deck.parallel.stages, ElementsAre(6, 2, 2, 2));
  EXPECT_FALSE(deck.parallel.is_to_be_measured());
  const std::string text = resolved_text(deck);
  EXPECT_THAT(text, HasSubstr("  stages: [6, 2, 2, 2]\n"));
  EXPECT_THAT(text, Not(HasSubstr("split: 1")));
  EXPECT_EQ(resolved_text(parse_resolved(text)), text);
  // Chunks of several a stage are counted in the order of the model.
  const Deck interleaved =
      small_with(t5(6, 6, 2, {"parallel.virtual_pipeline=3", "parallel.split=4"}));
  EXPECT_THAT(interleaved.parallel.stages, ElementsAre(1, 1, 2, 2, 3, 3));
  // Without it a chunk may have layers of both.
  EXPECT_THAT(errors_with(t5(5, 4, 3, {"parallel.stages=[3, 3, 3]"})), IsEmpty());
  EXPECT_THAT(errors_with(t5(5, 4, 3, {"parallel.split=2", "parallel.stages=auto"})),
              IsEmpty());
}

TEST(Split, WhatIsWrongIsSaidWithWhatIsRight) {
  struct Case {
    std::vector<std::string> overrides;
    std::string key, what, allowed, fix;
  };
  const std::vector<Case> cases = {
      {t5(6, 6, 4, {"parallel.split=0"}), "parallel.split", "is too small",
       "integer: at least 1", "parallel.split: 1"},
      {t5(6, 6, 4, {"parallel.split=4"}), "parallel.split",
       "leaves no chunk for the decoder; there are pipeline 4 × virtual_pipeline 1 = 4 "
       "chunks",
       "1 to 3", "parallel.split: 3"},
      {t5(2, 6, 6, {"parallel.split=4"}), "parallel.split",
       "gives the encoder 4 chunks for 2 layers: one would have nothing at all in it; "
       "there are pipeline 6 × virtual_pipeline 1 = 6 chunks",
       "1 to 3", "parallel.split: 3"},
      {t5(6, 1, 4, {"parallel.split=1"}), "parallel.split",
       "gives the decoder 3 chunks for 1 layer: one would have nothing at all in it; "
       "there are pipeline 4 × virtual_pipeline 1 = 4 chunks",
       "2 to 3", "parallel.split: 2"},
      {t5(6, 6, 1, {"parallel.split=1"}), "parallel.split",
       "is of a pipeline; there is none", "left out where parallel.pipeline is 1",
       "remove parallel.split"},
      {t5(6, 6, 2, {"parallel.split=1", "parallel.stages=[5, 7]"}), "parallel.stages",
       "says which layers each chunk has, and parallel.split (1) does, too",
       "one of the two", "parallel.stages: auto"},
      {t5(2, 2, 7, {"parallel.split=3"}), "parallel.pipeline",
       "makes pipeline 7 × virtual_pipeline 1 = 7 chunks; with 4 layers some would have "
       "nothing at all in them",
       "at most 6 chunks: the first may have the embedding alone, the last the head",
       "parallel.pipeline: 6"},
      {t5(6, 6, 2, {"parallel.stages=[3, 3]"}), "parallel.stages",
       "places 6 layers; the model has 12", "numbers with sum 12",
       "parallel.stages: [6, 6]"},
      {{"parallel.pipeline=2", "parallel.split=1"},
       "parallel.split",
       "is a key of t5, and model.kind is gpt",
       "model.kind: t5",
       "remove parallel.split"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(c.overrides, " ")));
    const auto errors = errors_with(c.overrides);
    ASSERT_EQ(errors.size(), 1u) << format_errors(errors);
    EXPECT_EQ(errors[0].key, c.key);
    EXPECT_EQ(errors[0].what, c.what);
    EXPECT_EQ(errors[0].allowed, c.allowed);
    EXPECT_EQ(errors[0].fix, c.fix);
    EXPECT_EQ(errors[0].place, "--set");
  }
}

// A grid is proposed where the split goes with its stages.
TEST(Split, GridsThatAreProposedGoWithIt) {
  const auto overrides =
      t5(4, 4, 4, {"parallel.split=3", "parallel.tensor=3", "parallel.data=1"});
  const auto errors = errors_with(overrides, 8);
  ASSERT_FALSE(errors.empty());
  bool has_grids = false;
  for (const DeckError& error : errors) {
    if (error.key != "parallel.data") continue;
    has_grids = true;
    EXPECT_THAT(error.fix, HasSubstr("pipeline 4"));
    EXPECT_THAT(error.fix, Not(HasSubstr("pipeline 2")));
  }
  EXPECT_TRUE(has_grids) << format_errors(errors);
}

}  // namespace
}  // namespace trireme::config

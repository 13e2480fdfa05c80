// Ranks that the grid of the deck does not have: the error lists the grids that would do,
// and the list is right. Each grid in it gives a deck without errors, no other one does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <tuple>

#include "deck_testing.hpp"

namespace trireme::config {
namespace {

using Overrides = std::vector<std::string>;
using Grid = std::tuple<int, int, int>;  // tensor, data, pipeline
constexpr std::size_t kMostListed = 12;

Overrides on_grid(Overrides deck, int tensor, int data, int pipeline) {
  deck.push_back(fmt::format("parallel.tensor={}", tensor));
  deck.push_back(fmt::format("parallel.data={}", data));
  deck.push_back(fmt::format("parallel.pipeline={}", pipeline));
  return deck;
}

// What is said to so many ranks: the grid has one tensor rank more than there are.
std::string fix_for(const Overrides& deck, int ranks, int pipeline = 1) {
  for (const DeckError& error :
       errors_with(on_grid(deck, ranks + 1, 1, pipeline), ranks)) {
    if (error.key == "parallel.data") return error.fix;
  }
  return "no error of parallel.data";
}

std::set<Grid> listed_in(const std::string& fix) {
  static const std::regex kGrid(R"(tensor (\d+) data (\d+)( pipeline (\d+))?)");
  std::set<Grid> grids;
  for (std::sregex_iterator grid(fix.begin(), fix.end(), kGrid), end; grid != end;
       ++grid) {
    const int pipeline = (*grid)[4].matched ? std::stoi((*grid)[4]) : 1;
    grids.insert({std::stoi((*grid)[1]), std::stoi((*grid)[2]), pipeline});
  }
  return grids;
}

// By trying all of them.
std::set<Grid> right_grids(const Overrides& deck, int ranks, int most_stages) {
  const bool splits_context =
      std::count(deck.begin(), deck.end(), "parallel.context=2") > 0;
  const int context = splits_context ? 2 : 1;
  std::set<Grid> grids;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; pipeline <= std::min(most_stages, ranks); ++pipeline) {
      const int data = ranks / (tensor * pipeline * context);
      if (data > 0 && errors_with(on_grid(deck, tensor, data, pipeline), ranks).empty()) {
        grids.insert({tensor, data, pipeline});
      }
    }
  }
  return grids;
}

// The small deck: 4 layers, 4 heads, sequence 32, global batch 32, micro-batches of one.
TEST(GridsListed, AreTheRightOnes) {
  const std::vector<Overrides> decks = {
      {},
      {"batch.micro=2", "batch.global=24"},
      {"model.heads=16", "model.kv_heads=8"},
      {"model.heads=8", "model.ffn_hidden=100"},
      {"model.hidden=48", "model.heads=12", "model.sequence=18", "parallel.sequence=true",
       "batch.global=36"},
      {"model.heads=8", "model.vocab=6"},
      {"model.layers=6", "batch.ramp_up={start: 4, increment: 4, samples: 100}"},
      {"model.layers=8", "parallel.virtual_pipeline=2", "batch.global=24"},
      {"parallel.context=2"}};
  std::size_t grids = 0;
  for (const Overrides& deck : decks) {
    for (const int stages : {1, 2}) {
      for (int ranks = 1; ranks <= 18; ++ranks) {
        const std::string fix = fix_for(deck, ranks, stages);
        // Decks without a pipeline are offered one where nothing else will do.
        auto right = right_grids(deck, ranks, stages == 1 ? 1 : ranks);
        if (right.empty()) right = right_grids(deck, ranks, ranks);
        SCOPED_TRACE(fmt::format("{} ranks, {} stages, {}: {}", ranks, stages,
                                 fmt::join(deck, " "), fix));
        grids += right.size();
        if (right.size() <= kMostListed) {
          EXPECT_EQ(listed_in(fix), right);
          continue;
        }
        const auto listed = listed_in(fix);
        EXPECT_EQ(listed.size(), kMostListed);
        EXPECT_TRUE(
            std::includes(right.begin(), right.end(), listed.begin(), listed.end()));
        EXPECT_THAT(fix, testing::EndsWith(
                             fmt::format("; and {} more", right.size() - kMostListed)));
      }
    }
  }
  EXPECT_GT(grids, 200u);
}

TEST(GridsListed, InWords) {
  EXPECT_EQ(fix_for({}, 4),  // five tensor ranks do not suit it
            "take one of the grids of 4 ranks: tensor 1 data 4; tensor 2 data 2; tensor "
            "4 data 1");
  EXPECT_EQ(
      fix_for({}, 3),
      "start 4 ranks, or take one of the grids of 3 ranks: tensor 1 data 1 pipeline "
      "3");
  EXPECT_EQ(fix_for({"parallel.stages=[2]"}, 3),
            "start another number of ranks: no grid of 3 suits the model and "
            "batch.global");
  const auto fix_of = [](const Overrides& overrides, int ranks, const char* key) {
    for (const DeckError& error : errors_with(overrides, ranks)) {
      if (error.key == key) return error.fix;
    }
    return fmt::format("no error of {}", key);
  };
  EXPECT_EQ(fix_of({"parallel.tensor=2", "parallel.data=3"}, 8, "parallel.data"),
            "parallel.data: auto, or take one of the grids of 8 ranks: tensor 1 data 8; "
            "tensor 2 data 4; tensor 4 data 2");
  // Copies that the ranks have, and the batch has no use for.
  EXPECT_THAT(fix_of({"batch.global=24"}, 16, "batch.global"),
              testing::EndsWith("or take one of the grids of 16 ranks: tensor 2 data 8; "
                                "tensor 4 data 4"));
}

}  // namespace
}  // namespace trireme::config

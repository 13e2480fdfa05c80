// What a probe measures is no test's affair, but that it measures each kind of block
// once, in the form that layers are dealt by.
#include "step/block_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <set>
#include <vector>

#include "comm/planned_communicator.hpp"
#include "comm/rank_grid.hpp"

namespace trireme::step {
namespace {

config::Deck small_deck() {
  config::Deck deck;
  deck.model.layers = 3;
  deck.model.hidden = 32;
  deck.model.heads = deck.model.kv_heads = 4;
  deck.model.ffn_hidden = 128;
  deck.model.sequence = 16;
  deck.model.vocab = 100;
  deck.parallel.pipeline = 2;
  deck.parallel.balance = config::Balance::measured;
  deck.batch.micro = 2;
  deck.batch.global = 8;
  return deck;
}

// A rank alone, which has a place in a pipeline of two: probes send along no pipeline.
comm::ProcessGroups first_of_two() {
  comm::ProcessGroups groups = comm::make_groups_of_one();
  const comm::GridShape shape{.pipeline = 2};
  groups.pipeline =
      comm::make_process_groups(comm::make_planned_communicator(0, 2, "world"), shape)
          .pipeline;
  return groups;
}

TEST(BlockProbe, TimesEachKindOfBlockOnce) {
  using config::PipelineSchedule;
  for (const auto schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
    config::Deck deck = small_deck();
    deck.parallel.schedule = schedule;
    const schedule::ModelCost cost = measured_cost(first_of_two(), deck);
    ASSERT_EQ(cost.blocks.size(), 5u);
    for (const schedule::ModelCost::Block& block : cost.blocks) {
      EXPECT_GT(block.cost.forward, 0.0);
      EXPECT_GT(block.cost.backward_input, 0.0);
      // The passes of weights are timed where the schedule has them apart.
      EXPECT_EQ(block.cost.backward_weight > 0.0,
                schedule == PipelineSchedule::zero_bubble);
    }
    for (const std::size_t other : {2u, 3u}) {
      EXPECT_EQ(cost.blocks[other].cost.total(), cost.blocks[1].cost.total());
    }
    EXPECT_THAT(cost.layers(), ::testing::ElementsAre(false, true, true, true, false));
  }
}

// Nothing that it makes up may be out of range: embeddings and gathers read by it.
TEST(BlockProbe, FillsByWhatFieldsHold) {
  using enum Holds;
  const BatchSpec batch{.streams = {{"text", 12}, {"marks", 4}, {"many", 20}},
                        .fields = {}};
  const auto filled = [&](const FieldSpec& field, index_t samples) {
    std::vector<std::int32_t> all;
    for (index_t i = 0; i < batch.elements(field, samples); ++i) {
      all.push_back(probed_element(batch, field, i, samples));
    }
    return all;
  };
  using ::testing::AllOf;
  using ::testing::Each;
  using ::testing::ElementsAre;
  using ::testing::Ge;
  using ::testing::Lt;
  for (const Holds kind : {words, classes}) {
    const auto ids = filled({.name = "ids", .holds = kind, .below = 5}, 3);
    EXPECT_THAT(ids, Each(AllOf(Ge(0), Lt(5))));
    EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), 5u);
  }
  EXPECT_THAT(filled({.name = "unknown vocabulary"}, 1), Each(0));
  EXPECT_THAT(filled({.name = "places", .stream = 1, .holds = places}, 2),
              ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(filled({.name = "lengths", .per = Per::sample, .holds = lengths}, 2),
              ElementsAre(12, 12));
  EXPECT_THAT(filled({.name = "rows", .stream = 1, .holds = rows}, 2),
              ElementsAre(0, 0, 3, 3, 6, 6, 9, 9));
  const auto few = filled({.name = "rows", .stream = 2, .holds = rows, .rows_of = 1}, 1);
  EXPECT_THAT(std::vector(few.begin(), few.begin() + 6), ElementsAre(0, 1, 2, 3, -1, -1));
  EXPECT_THAT(filled({.name = "weights", .holds = weights}, 1),
              Each(std::bit_cast<std::int32_t>(1.0f)));
}

TEST(BlockProbe, DealsAllLayersAndSaysByWhat) {
  config::Deck deck = small_deck();
  const std::string said = deal_by_measured_costs(first_of_two(), deck);
  ASSERT_EQ(deck.parallel.stages.size(), 2u);
  EXPECT_EQ(std::accumulate(deck.parallel.stages.begin(), deck.parallel.stages.end(), 0),
            3);
  EXPECT_FALSE(deck.parallel.is_to_be_measured());
  for (const char* part :
       {"embedding ", "layers/0 ", "head ", "Layers of the chunks: ["}) {
    EXPECT_THAT(said, ::testing::HasSubstr(part));
  }
  EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("layers/1")));
}

}  // namespace
}  // namespace trireme::step

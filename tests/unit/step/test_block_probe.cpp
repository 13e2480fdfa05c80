// What a probe measures is no test's affair, but that it measures each kind of block
// once, in the form that layers are dealt by.
#include "step/block_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

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

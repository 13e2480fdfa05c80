// What divisions of the layers take: time with all micro-batches, memory of the fullest
// stage.
#include "schedule/division.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

constexpr double kAllPasses = 1e12;

// So many layers of one parameter each between an embedding and a head of four.
ModelCost model_of(int layers) {
  ModelCost model;
  model.blocks.push_back({{0.02, 0.0, 0.02}, false, 4.0});
  for (int i = 0; i < layers; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true, 1.0});
  model.blocks.push_back({{1.2, 0.01, 0.01}, false, 4.0});
  return model;
}

TEST(DivisionEvenSplit, IsAsEvenAsMayBe) {
  EXPECT_EQ(even_split(8, 4), (Split{2, 2, 2, 2}));
  EXPECT_EQ(even_split(10, 4), (Split{2, 3, 3, 2}));
  EXPECT_EQ(even_split(11, 4), (Split{2, 3, 3, 3}));
  EXPECT_EQ(even_split(3, 1), (Split{3}));
  EXPECT_EQ(even_split(3, 4), (Split{0, 1, 1, 1}));
  EXPECT_EQ(even_split(2, 4), (Split{0, 1, 1, 0}));
}

// Layers of 3 and of 1, as of an encoder and a decoder.
TEST(DivisionByWork, IsAsEvenInWorkAsMayBe) {
  ModelCost model = model_of(8);
  for (std::size_t i = 1; i <= 4; ++i) model.blocks[i].cost = {3.0, 3.0, 3.0};
  EXPECT_EQ(cut_by_work({4, 4}, model), (Split{3, 5}));
  EXPECT_EQ(cut_by_work({2, 2, 2, 2}, model), (Split{1, 2, 1, 4}));
  for (const int pieces : {1, 3, 4, 10}) {
    const Split even = even_split(8, pieces);
    EXPECT_EQ(cut_by_work(even, model_of(8)), even);
  }
}

TEST(Divisions, AreTimedAsAStepIs) {
  for (const PipelineShape& shape :
       {PipelineShape{4, 1, 11}, PipelineShape{4, 2, 11}, PipelineShape{3, 3, 9}}) {
    const ModelCost model = model_of(20);
    const Split split = even_split(20, shape.pieces());
    const Costs costs = costs_of(split, model);
    for (const auto kind : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                            PipelineSchedule::zero_bubble}) {
      const Divisions divisions(shape, kind, kAllPasses);
      EXPECT_TRUE(divisions.are_simulated());
      EXPECT_EQ(divisions.demand_of(split, model).seconds,
                seconds_of(shape, choose_orders(shape, kind, costs), costs))
          << text_of(shape);
    }
  }
}

// A step of many micro-batches repeats itself in its middle.
TEST(Divisions, GoOnAsTheyDoBetweenHalfAndAllThatIsLookedAt) {
  for (const auto& [shape, tolerance] : {std::pair{PipelineShape{4, 1, 514}, 1e-9},
                                         {PipelineShape{4, 2, 514}, 0.01},
                                         {PipelineShape{8, 2, 256}, 0.01}}) {
    for (const Split& split : {even_split(24, shape.pieces()), [&] {
                                 Split moved = even_split(24, shape.pieces());
                                 moved.front() += 1;
                                 moved.back() -= 1;
                                 return moved;
                               }()}) {
      const auto seconds = [&](double passes) {
        return Divisions(shape, PipelineSchedule::one_f_one_b, passes)
            .demand_of(split, model_of(24))
            .seconds;
      };
      const double all = seconds(kAllPasses);
      EXPECT_NEAR(seconds(6000.0), all, tolerance * all) << text_of(shape);
    }
  }
}

// 1F1B keeps p - r micro-batches on stage r. A layer that is made again keeps its input.
TEST(Divisions, HoldWhatTheFullestStageDoes) {
  const PipelineShape shape{.stages = 4, .microbatches = 16};
  const Divisions divisions(shape, PipelineSchedule::one_f_one_b, kAllPasses);
  ModelCost model = model_of(8);
  Demand demand = divisions.demand_of({2, 2, 2, 2}, model);
  EXPECT_DOUBLE_EQ(demand.parameters, 6.0);
  EXPECT_DOUBLE_EQ(demand.activations, 2 * 4);
  demand = divisions.demand_of({1, 3, 3, 1}, model);
  EXPECT_DOUBLE_EQ(demand.parameters, 5.0);
  EXPECT_DOUBLE_EQ(demand.activations, 3 * 3);
  model.recomputed = 1;
  demand = divisions.demand_of({1, 3, 3, 1}, model);
  EXPECT_DOUBLE_EQ(demand.activations, 3 * (2 + 1.0 / 16));
}

// No order is made of a pipeline that is too deep to be simulated.
TEST(Divisions, OfDeepPipelinesAreNotSimulated) {
  const PipelineShape shape{.stages = 2048, .chunks = 2, .microbatches = 8192};
  const Divisions divisions(shape, PipelineSchedule::one_f_one_b, 1e6);
  EXPECT_FALSE(divisions.are_simulated());
  EXPECT_THROW(divisions.demand_of(Split(4096, 1), model_of(4096)), Error);
}

}  // namespace
}  // namespace trireme::schedule

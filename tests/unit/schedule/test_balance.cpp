// Layers dealt to pieces: none lost, none better by hand, as fast as is said.
#include "schedule/balance.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::gpipe,
                                           PipelineSchedule::one_f_one_b,
                                           PipelineSchedule::zero_bubble};

// So many layers between an embedding and a head that weighs some layers.
ModelCost with_head(double weight, int layers) {
  ModelCost model;
  model.blocks.push_back({{0.02, 0.0, 0.02}, false});
  for (int i = 0; i < layers; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true});
  model.blocks.push_back({{weight, weight, weight}, false});
  return model;
}

double efficiency(const PipelineShape& shape, PipelineSchedule schedule,
                  const Split& split, const ModelCost& model) {
  const Costs costs = costs_of(split, model);
  double work = 0.0;
  for (const PieceCost& piece : costs.pieces) work += piece.total();
  return work * shape.microbatches / shape.stages /
         seconds_of(shape, choose_orders(shape, schedule, costs), costs);
}

TEST(Balance, DealsEveryLayer) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.microbatches > 9) continue;
    for (const int layers : {shape.pieces() - 2, shape.pieces() - 1, shape.pieces(),
                             shape.pieces() + 1, 3 * shape.pieces() + 2}) {
      if (layers < 1 || (shape.pieces() > 16 && layers != shape.pieces() + 1)) continue;
      SCOPED_TRACE(fmt::format("{} layers, {}", layers, text_of(shape)));
      const Split split =
          balance(shape, PipelineSchedule::one_f_one_b, with_head(1.3, layers));
      ASSERT_EQ(split.size(), static_cast<std::size_t>(shape.pieces()));
      EXPECT_EQ(std::accumulate(split.begin(), split.end(), 0), layers);
      for (std::size_t g = 1; g + 1 < split.size(); ++g) EXPECT_GE(split[g], 1);
    }
  }
}

// Equal work for equal stages.
TEST(Balance, IsEvenWhereLayersDivide) {
  for (const int stages : {2, 4, 8, 64}) {
    const PipelineShape shape{.stages = stages, .microbatches = 4 * stages};
    const Split split =
        balance(shape, PipelineSchedule::one_f_one_b, with_head(0.1, 2 * stages));
    EXPECT_EQ(split, Split(static_cast<std::size_t>(stages), 2));
  }
}

// No single layer elsewhere makes a step faster.
TEST(Balance, IsNotBetterByOneMove) {
  for (const PipelineSchedule schedule : kSchedules) {
    for (const PipelineShape& shape :
         {PipelineShape{2, 1, 8}, PipelineShape{3, 1, 7}, PipelineShape{2, 2, 8}}) {
      const ModelCost model = with_head(5.5, 12);
      const Split split = balance(shape, schedule, model);
      const double best = efficiency(shape, schedule, split, model);
      for (std::size_t from = 0; from < split.size(); ++from) {
        for (std::size_t to = 0; to < split.size(); ++to) {
          Split moved = split;
          moved[from] -= 1;
          moved[to] += 1;
          const bool is_end = from == 0 || from + 1 == split.size();
          if (to == from || moved[from] < (is_end ? 0 : 1)) continue;
          EXPECT_LE(efficiency(shape, schedule, moved, model), best * (1.0 + 1e-9));
        }
      }
    }
  }
}

// GPT-2 124M on two stages, 8 micro-batches: its head weighs 5.5 layers.
TEST(Balance, OfGpt2) {
  const ModelCost model = with_head(5.5, 12);
  const PipelineShape plain{.stages = 2, .microbatches = 8};
  const Split split = balance(plain, PipelineSchedule::one_f_one_b, model);
  EXPECT_EQ(split, (Split{9, 3}));
  EXPECT_GT(efficiency(plain, PipelineSchedule::one_f_one_b, split, model), 0.87);
  const Split zero = balance(plain, PipelineSchedule::zero_bubble, model);
  EXPECT_GT(efficiency(plain, PipelineSchedule::zero_bubble, zero, model), 0.93);
  const PipelineShape virtual_two{.stages = 2, .chunks = 2, .microbatches = 8};
  const Split two = balance(virtual_two, PipelineSchedule::one_f_one_b, model);
  EXPECT_GT(efficiency(virtual_two, PipelineSchedule::one_f_one_b, two, model), 0.95);
}

// An encoder's light layers and a decoder's heavy ones, with what begins the decoder
// between them: the heavy ones are fewer on a stage.
TEST(Balance, OfUnlikeLayers) {
  ModelCost model;
  model.blocks.push_back({{0.01, 0.0, 0.01}, false});
  for (int i = 0; i < 12; ++i) model.blocks.push_back({{1.0, 1.0, 1.0}, true});
  model.blocks.push_back({{0.01, 0.0, 0.01}, false});
  for (int i = 0; i < 4; ++i) model.blocks.push_back({{3.0, 3.0, 3.0}, true});
  model.blocks.push_back({{0.01, 0.01, 0.01}, false});
  const PipelineShape shape{.stages = 4, .microbatches = 16};
  const Split split = balance(shape, PipelineSchedule::one_f_one_b, model);
  EXPECT_EQ(split, (Split{6, 6, 2, 2}));
  EXPECT_EQ(cuts_of(split, model.layers()), (std::vector<std::size_t>{0, 7, 13, 16, 19}));
  EXPECT_EQ(cuts_of({0, 12, 4, 0}, model.layers()),
            (std::vector<std::size_t>{0, 1, 13, 18, 19}));
  EXPECT_THROW(cuts_of({9, 9}, model.layers()), Error);
}

TEST(Balance, ChoosesAmongGroups) {
  const PipelineShape shape{.stages = 2, .chunks = 2, .microbatches = 8};
  const Costs costs = unequal_costs(shape);
  const Choice choice = choose_orders(shape, PipelineSchedule::one_f_one_b, costs);
  for (int groups = 1; groups <= most_groups(shape); ++groups) {
    EXPECT_GE(simulate(shape, interleaved_orders(shape, groups), costs).seconds,
              choice.seconds.value() * (1.0 - 1e-9));
  }
  EXPECT_EQ(orders_of_all(shape, choice.order_of),
            interleaved_orders(shape, choice.groups));
  // Equally fast: more groups, with less in flight.
  EXPECT_EQ(
      choose_orders(shape, PipelineSchedule::one_f_one_b, equal_costs(shape)).groups,
      most_groups(shape));
}

// A start may not take minutes or gigabytes to find its orders: beyond a bound they are
// those of a rule, which needs no other stage.
TEST(Balance, LargePipelinesGoByRule) {
  const PipelineShape deep{.stages = 4096, .chunks = 2, .microbatches = 65536};
  const Costs costs = equal_costs(deep);
  const auto order_of = [&](PipelineSchedule kind, int stage) {
    const Choice choice = choose_orders(deep, kind, costs);
    EXPECT_FALSE(choice.seconds.has_value());
    return choice.order_of(stage);
  };
  EXPECT_EQ(order_of(PipelineSchedule::one_f_one_b, 17), interleaved(deep, 17, 16));
  EXPECT_EQ(order_of(PipelineSchedule::zero_bubble, 17), zero_bubble_by_rule(deep, 17));
  EXPECT_EQ(order_of(PipelineSchedule::gpipe, 4095),
            all_forward_all_backward(deep, 4095));
  EXPECT_TRUE(is_simulated({64, 2, 256}, PipelineSchedule::one_f_one_b));
  EXPECT_TRUE(is_simulated({16, 1, 128}, PipelineSchedule::zero_bubble));
}

// Where there is one order only nothing is simulated to find it: the orders of all stages
// would take each rank a gigabyte here.
TEST(Balance, ASingleOrderIsNotSimulated) {
  for (const PipelineShape& shape :
       {PipelineShape{4096, 1, 2048}, PipelineShape{1024, 1, 8192},
        PipelineShape{4, 1, 8}}) {
    const Costs costs = equal_costs(shape);
    for (const auto kind : {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe}) {
      EXPECT_FALSE(choose_orders(shape, kind, costs).seconds.has_value())
          << text_of(shape);
    }
  }
  // Of chunks there is one where all micro-batches are a single group; and many passes
  // are not gone through for several.
  const auto by_groups = [](const PipelineShape& shape) {
    return choose_orders(shape, PipelineSchedule::one_f_one_b, equal_costs(shape))
        .seconds.has_value();
  };
  EXPECT_FALSE(by_groups({512, 2, 512}));
  EXPECT_FALSE(by_groups({512, 2, 2048}));
  EXPECT_TRUE(by_groups({4, 2, 16}));
}

TEST(Balance, RefusesPiecesOfNothing) {
  EXPECT_THAT(
      [] {
        balance({.stages = 5, .microbatches = 4}, PipelineSchedule::gpipe,
                with_head(1.0, 2));
      },
      ThrowsMessage<Error>(HasSubstr("4 pieces at most")));
  EXPECT_EQ(balance({.stages = 4, .microbatches = 4}, PipelineSchedule::gpipe,
                    with_head(1.0, 2)),
            (Split{0, 1, 1, 0}));
}

}  // namespace
}  // namespace trireme::schedule

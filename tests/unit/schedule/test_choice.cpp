// The order of passes that a pipeline takes: the fastest, and that of a rule where it is
// too deep to be simulated.
#include "schedule/choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

TEST(Choice, ChoosesAmongGroups) {
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
TEST(Choice, LargePipelinesGoByRule) {
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
TEST(Choice, ASingleOrderIsNotSimulated) {
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

// What is chosen from is what is simulated: all groups, and without them one order.
TEST(Choice, IsAmongTheOrdersToTry) {
  const auto count = [](const PipelineShape& shape, PipelineSchedule kind) {
    return orders_to_try(shape, kind).size();
  };
  const PipelineShape shape{.stages = 4, .chunks = 3, .microbatches = 28};
  EXPECT_EQ(count(shape, PipelineSchedule::one_f_one_b), 6u);
  EXPECT_EQ(passes_to_choose(shape, PipelineSchedule::one_f_one_b), 6 * 2 * 12 * 28);
  EXPECT_EQ(count(shape, PipelineSchedule::gpipe), 1u);
  EXPECT_EQ(count({.stages = 4, .microbatches = 28}, PipelineSchedule::one_f_one_b), 1u);
  const Costs costs = unequal_costs(shape);
  double least = std::numeric_limits<double>::infinity();
  for (const OrderOf& order_of : orders_to_try(shape, PipelineSchedule::one_f_one_b)) {
    least =
        std::min(least, simulate(shape, orders_of_all(shape, order_of), costs).seconds);
  }
  const Choice choice = choose_orders(shape, PipelineSchedule::one_f_one_b, costs);
  EXPECT_DOUBLE_EQ(choice.seconds.value(), least);
}

}  // namespace
}  // namespace trireme::schedule

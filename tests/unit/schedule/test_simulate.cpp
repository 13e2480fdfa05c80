// Bubbles as the papers have them, and zero-bubble orders that are no worse on any
// pipeline.
#include "schedule/simulate.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Kind = Action::Kind;

// Narayanan et al. 2021, 2.2: (p - 1)/m, and (p - 1)/(v m) with v chunks: there only for
// groups of p micro-batches; here for every m >= p.
TEST(Simulate, BubblesAreThoseOfTheory) {
  for (const PipelineShape& shape : pipelines()) {
    SCOPED_TRACE(text_of(shape));
    const Costs costs = equal_costs(shape);
    const double theory = (shape.stages - 1.0) / shape.microbatches;
    if (shape.chunks == 1) {
      EXPECT_NEAR(bubble_of(simulate(shape, gpipe_orders(shape), costs)), theory, 1e-9);
      const auto orders = interleaved_orders(shape, 1);
      EXPECT_NEAR(bubble_of(simulate(shape, orders, costs)), theory, 1e-9);
    } else if (shape.microbatches >= shape.stages) {
      const auto orders = interleaved_orders(shape, most_groups(shape));
      EXPECT_NEAR(bubble_of(simulate(shape, orders, costs)), theory / shape.chunks, 1e-9);
    }
  }
}

// Qi et al. 2023, ZB-H1: (p - 1)(T_F + T_B - T_W), a third of 1F1B's with equal passes.
TEST(SimulateZeroBubble, IsAThirdOfOneForwardOneBackward) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.pieces() * shape.microbatches > 4096) continue;
    SCOPED_TRACE(text_of(shape));
    const Costs costs = equal_costs(shape);
    const std::vector<Order> orders = zero_bubble(shape, costs);
    const double bubble = bubble_of(simulate(shape, orders, costs));
    const double theory = (shape.stages - 1.0) / shape.microbatches / shape.chunks;
    if (shape.microbatches >= shape.stages) {
      EXPECT_NEAR(bubble, theory / 3.0, 1e-9);
    } else {
      EXPECT_LT(bubble, bubble_of(simulate(shape, gpipe_orders(shape), costs)));
    }
    for (const Order& order : orders) {
      ASSERT_NO_THROW(check(order, shape.microbatches, shape.chunks));
      int now = 0;
      for (const Action& action : order) {
        if (action.kind == Kind::forward) ++now;
        if (ends_microbatch(action)) --now;
        ASSERT_LE(now, most_in_flight(shape, 0, most_groups(shape)));
      }
    }
  }
}

TEST(SimulateZeroBubble, IsNoSlowerWithUnequalPieces) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.pieces() * shape.microbatches > 2048 || shape.stages == 1) continue;
    SCOPED_TRACE(text_of(shape));
    const Costs costs = unequal_costs(shape);
    const double plain =
        simulate(shape, interleaved_orders(shape, most_groups(shape)), costs).seconds;
    EXPECT_LE(simulate(shape, zero_bubble(shape, costs), costs).seconds,
              plain * (1.0 + 1e-9));
  }
}

// Fewer in flight than a pipeline needs to come to its end: as few more as it takes.
TEST(SimulateZeroBubble, GoesOnWithTooFewInFlight) {
  const PipelineShape shape{.stages = 3, .chunks = 3, .microbatches = 6};
  const Costs costs = equal_costs(shape);
  for (const Order& order : zero_bubble(shape, costs, 1)) {
    EXPECT_NO_THROW(check(order, 6, 3));
  }
}

TEST(Simulate, TimesArePassesAndMessages) {
  const PipelineShape shape{.stages = 2, .microbatches = 1};
  const Costs costs{
      .pieces = {{2.0, 3.0, 4.0}, {5.0, 6.0, 7.0}}, .message = 0.5, .message_work = 0.25};
  const Timeline timeline = simulate(shape, interleaved_orders(shape, 1), costs);
  // F 2.25, message, F 5.25, B 13.25, message, B 7.25.
  EXPECT_DOUBLE_EQ(timeline.seconds, 2.25 + 0.5 + 5.25 + 13.25 + 0.5 + 7.25);
  EXPECT_DOUBLE_EQ(timeline.stages[1][0].begin, 2.75);
  EXPECT_DOUBLE_EQ(timeline.stages[1][0].end, 8.0);
  EXPECT_DOUBLE_EQ(timeline.sent[1][0], 2.25);
  EXPECT_DOUBLE_EQ(timeline.sent[0][1], 21.25);
  EXPECT_DOUBLE_EQ(timeline.busy[0], 9.5);
  EXPECT_DOUBLE_EQ(bubble_of(timeline), (timeline.seconds - 18.5) / 18.5);
}

TEST(Simulate, SaysWhoWaitsForEver) {
  const PipelineShape shape{.stages = 2, .microbatches = 2};
  std::vector<Order> orders = interleaved_orders(shape, 1);
  orders[0] = no_pipelining(2);  // F0 B0 F1 B1
  orders[1] = {{.kind = Kind::forward, .microbatch = 0},
               {.kind = Kind::forward, .microbatch = 1, .slot = 1},
               {.kind = Kind::backward, .microbatch = 0},
               {.kind = Kind::backward, .microbatch = 1, .slot = 1}};
  EXPECT_THAT([&] { simulate(shape, orders, equal_costs(shape)); },
              ThrowsMessage<Error>(
                  HasSubstr("stages wait for each other: stage 0 for the input of "
                            "backward of micro-batch 0 in chunk 0, stage 1 for the input "
                            "of forward of micro-batch 1 in chunk 0")));
  EXPECT_THROW(simulate(shape, {orders[0]}, equal_costs(shape)), Error);
  EXPECT_THROW(simulate(shape, orders, {}), Error);
}

}  // namespace
}  // namespace trireme::schedule

// Orders of passes on every pipeline: each pass once and in order, no more in flight than
// said, and nobody waits for ever.
#include "schedule/pipeline.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Kind = Action::Kind;

// "F0 F1 B0 ...", with the chunk where there are several.
std::string text_of(const Order& order, bool chunks = false) {
  std::string text;
  for (const Action& action : order) {
    if (!text.empty()) text += ' ';
    text += fmt::format("{}{}", "FBIW"[static_cast<int>(action.kind)], action.microbatch);
    if (chunks) text += fmt::format(".{}", action.chunk);
  }
  return text;
}

// The most (micro-batch, chunk) pairs with saved tensors.
int in_flight(const Order& order) {
  int now = 0;
  int most = 0;
  for (const Action& action : order) {
    if (action.kind == Kind::forward) most = std::max(most, ++now);
    if (ends_microbatch(action)) --now;
  }
  return most;
}

TEST(Pipeline, OneForwardOneBackward) {
  const PipelineShape shape{.stages = 3, .microbatches = 4};
  EXPECT_EQ(text_of(one_forward_one_backward(shape, 0)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text_of(one_forward_one_backward(shape, 2)), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(text_of(all_forward_all_backward(shape, 1)), "F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(one_forward_one_backward({.microbatches = 5}, 0), no_pipelining(5));
}

// Qi et al. 2023, Fig. 2 (ZB-H1).
TEST(Pipeline, ZeroBubbleByRule) {
  const PipelineShape shape{.stages = 3, .microbatches = 4};
  EXPECT_EQ(text_of(zero_bubble_by_rule(shape, 0)),
            "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text_of(zero_bubble_by_rule(shape, 1)),
            "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3");
  EXPECT_EQ(text_of(zero_bubble_by_rule(shape, 2)),
            "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

// No stage has more in flight than the first one of the same schedule without the split,
// and the bubble is smaller than that schedule's.
TEST(Pipeline, ZeroBubbleByRuleIsNoLargerAndFaster) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.stages == 1) continue;
    SCOPED_TRACE(text_of(shape));
    const std::vector<Order> orders = zero_bubble_rule_orders(shape);
    for (const Order& order : orders) {
      EXPECT_NO_THROW(check(order, shape.microbatches, shape.chunks));
      EXPECT_LE(in_flight(order), most_in_flight(shape, 0, most_groups(shape)));
    }
    if (shape.pieces() * shape.microbatches > 4096) continue;
    const Costs costs = equal_costs(shape);
    EXPECT_LE(
        simulate(shape, orders, costs).seconds,
        simulate(shape, interleaved_orders(shape, most_groups(shape)), costs).seconds +
            1e-9);
  }
}

// Narayanan et al. 2021, Fig. 4: groups of as many micro-batches as stages.
TEST(Pipeline, Interleaved) {
  const PipelineShape shape{.stages = 2, .chunks = 2, .microbatches = 4};
  EXPECT_EQ(text_of(interleaved(shape, 0, 2), true),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 "
            "B3.0");
  EXPECT_EQ(text_of(interleaved(shape, 1, 2), true),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 "
            "B3.0");
  // Five micro-batches on two stages: groups of two and of three.
  EXPECT_EQ(most_groups({.stages = 2, .chunks = 2, .microbatches = 5}), 2);
  EXPECT_EQ(text_of(interleaved({2, 2, 5}, 1, 2), true).substr(0, 24),
            "F0.0 F1.0 F0.1 F1.1 B0.1");
  EXPECT_EQ(most_groups({.stages = 4, .microbatches = 3}), 1);
}

TEST(Pipeline, ForwardOnly) {
  EXPECT_EQ(text_of(forward_only({.microbatches = 3})), "F0 F1 F2");
  const Order order = forward_only({.stages = 2, .chunks = 2, .microbatches = 3});
  EXPECT_EQ(text_of(order, true), "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1");
  EXPECT_EQ(slot_count(order, 1), 1);
  // It trains nothing: no schedule of a training step.
  EXPECT_THROW(check(order, 3, 2), Error);
}

TEST(Pipeline, EveryOrderIsWhole) {
  for (const PipelineShape& shape : pipelines()) {
    SCOPED_TRACE(text_of(shape));
    const auto check_all = [&](const std::vector<Order>& orders, auto&& bound) {
      for (int stage = 0; stage < shape.stages; ++stage) {
        const Order& order = orders[static_cast<std::size_t>(stage)];
        ASSERT_NO_THROW(check(order, shape.microbatches, shape.chunks));
        EXPECT_LE(in_flight(order), bound(stage));
      }
      EXPECT_NO_THROW(simulate(shape, orders, equal_costs(shape)));
      EXPECT_NO_THROW(simulate(shape, orders, unequal_costs(shape)));
    };
    const int all = shape.microbatches * shape.chunks;
    check_all(gpipe_orders(shape), [&](int) { return all; });
    for (const int groups : {1, (1 + most_groups(shape)) / 2, most_groups(shape)}) {
      check_all(interleaved_orders(shape, groups), [&](int stage) {
        const int bound = most_in_flight(shape, stage, groups);
        if (shape.chunks == 1) {
          EXPECT_EQ(bound, std::min(shape.stages - stage, all));
        }
        return bound;
      });
    }
  }
}

TEST(Pipeline, SaysWhatIsWrong) {
  const PipelineShape shape{.stages = 2, .chunks = 2, .microbatches = 4};
  const auto message = [](const char* text) {
    return ThrowsMessage<Error>(HasSubstr(text));
  };
  EXPECT_THAT([&] { one_forward_one_backward(shape, 0); }, message("one chunk"));
  EXPECT_THAT([&] { interleaved(shape, 2, 1); }, message("stage 2 of 2"));
  EXPECT_THAT([&] { interleaved(shape, 0, 3); }, message("3 groups of 4 micro-batches"));
  EXPECT_THAT([&] { interleaved(shape, 0, 0); }, message("0 groups"));
}

}  // namespace
}  // namespace trireme::schedule

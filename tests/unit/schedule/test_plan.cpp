// Plans with messages: what is sent is received in the same order, buffers are never used
// twice at a time, and sends that block until they are received block nobody for ever.
#include "schedule/plan.hpp"

#include <gmock/gmock.h>

#include <map>

#include "base/error.hpp"
#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Kind = Action::Kind;

// What lies in each buffer of a stage, as its actions go by: who reads finds what it
// wants, and nobody writes over what is still to be read.
class Buffers {
 public:
  explicit Buffers(const StagePlan& plan) : plan_(plan) {}

  void walk() {
    for (const Action& action : plan_.actions) {
      ASSERT_LT(std::max(action.in, action.out), plan_.buffers);
      switch (action.kind) {
        case Kind::recv_forward:
          write(action.out, "input", action);
          break;
        case Kind::recv_backward:
          write(action.out, "output gradient", action);
          break;
        case Kind::forward:
          if (action.in != Action::kNone) inputs_[key(action)] = action.in;
          expect(action.in, "input", action);
          if (action.out != Action::kNone) write(action.out, "output", action);
          break;
        case Kind::send_forward:
          expect(action.in, "output", action);
          content_.erase(action.in);
          break;
        case Kind::backward:
        case Kind::backward_input:
          expect_input(action);
          expect(action.in, "output gradient", action);
          if (action.out != Action::kNone) write(action.out, "input gradient", action);
          content_.erase(action.in);
          if (action.kind == Kind::backward) end(action);
          break;
        case Kind::backward_weight:
          expect_input(action);
          end(action);
          break;
        case Kind::send_backward:
          expect(action.in, "input gradient", action);
          content_.erase(action.in);
          break;
      }
    }
    EXPECT_TRUE(content_.empty());
  }

 private:
  static std::string key(const Action& action) {
    return fmt::format("{}.{}", action.microbatch, action.chunk);
  }
  void write(int buffer, const char* what, const Action& action) {
    const auto [at, is_free] = content_.emplace(buffer, what + key(action));
    EXPECT_TRUE(is_free) << "buffer " << buffer << " has " << at->second;
  }
  void expect(int buffer, const char* what, const Action& action) {
    if (buffer == Action::kNone) return;
    EXPECT_EQ(content_[buffer], what + key(action));
  }
  void expect_input(const Action& action) {
    const auto input = inputs_.find(key(action));
    if (input != inputs_.end()) expect(input->second, "input", action);
  }
  void end(const Action& action) {
    const auto input = inputs_.find(key(action));
    if (input == inputs_.end()) return;
    content_.erase(input->second);
    inputs_.erase(input);
  }

  const StagePlan& plan_;
  std::map<int, std::string> content_;
  std::map<std::string, int> inputs_;
};

OrderOf of_these(const std::vector<Order>& orders) {
  return [&orders](int stage) { return orders.at(static_cast<std::size_t>(stage)); };
}

std::vector<StagePlan> plans_of(const PipelineShape& shape,
                                const std::vector<Order>& orders,
                                const Timeline* timeline = nullptr) {
  std::vector<StagePlan> plans;
  for (int stage = 0; stage < shape.stages; ++stage) {
    plans.push_back(with_messages(shape, of_these(orders), stage, timeline));
  }
  return plans;
}

TEST(Plan, OneStageSendsNothing) {
  const PipelineShape shape{.microbatches = 3};
  const auto plan = with_messages(
      shape, [](int) { return no_pipelining(3); }, 0);
  EXPECT_EQ(plan.actions, no_pipelining(3));
  EXPECT_EQ(plan.buffers, 0);
}

// The gradient of the first micro-batch is sent while this stage does F1: its receive
// begins before that.
TEST(Plan, MessagesTravelBesidePasses) {
  const PipelineShape shape{.stages = 2, .microbatches = 3};
  const auto plans = plans_of(shape, interleaved_orders(shape, 1));
  std::string text;
  for (const Action& action : plans.at(0).actions) {
    text += fmt::format("{}{} ", name_of(action.kind), action.microbatch);
  }
  EXPECT_EQ(text,
            "forward0 send_forward0 recv_backward0 forward1 send_forward1 backward0 "
            "recv_backward1 forward2 send_forward2 recv_backward2 backward1 backward2 ");
}

TEST(Plan, EveryPlanIsWholeAndComesToItsEnd) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.pieces() * shape.microbatches > 1024) continue;
    SCOPED_TRACE(text_of(shape));
    const auto check_all = [&](const std::vector<Order>& orders,
                               const Timeline* timeline = nullptr) {
      const std::vector<StagePlan> plans = plans_of(shape, orders, timeline);
      EXPECT_NO_THROW(check(shape, plans));
      for (std::size_t s = 0; s < plans.size(); ++s) {
        EXPECT_NO_THROW(check(plans[s].actions, shape.microbatches, shape.chunks));
        Order passes;
        for (const Action& action : plans[s].actions) {
          if (is_message(action)) continue;
          passes.push_back(action);
          passes.back().in = passes.back().out = Action::kNone;
        }
        EXPECT_EQ(passes, orders[s]);
        Buffers(plans[s]).walk();
      }
    };
    check_all(gpipe_orders(shape));
    check_all(interleaved_orders(shape, 1));
    check_all(interleaved_orders(shape, most_groups(shape)));
    check_all(zero_bubble_rule_orders(shape));
    if (shape.pieces() * shape.microbatches > 512) continue;
    for (const Costs& costs : {equal_costs(shape), unequal_costs(shape)}) {
      const std::vector<Order> found = zero_bubble(shape, costs);
      const Timeline timeline = simulate(shape, found, costs);
      check_all(found, &timeline);
    }
  }
}

// In flight: a few messages, however many micro-batches.
TEST(Plan, EvaluationComesToItsEnd) {
  for (const PipelineShape& shape : pipelines()) {
    if (shape.pieces() * shape.microbatches > 2048) continue;
    SCOPED_TRACE(text_of(shape));
    const std::vector<Order> orders(static_cast<std::size_t>(shape.stages),
                                    forward_only(shape));
    const auto plans = plans_of(shape, orders);
    EXPECT_NO_THROW(check(shape, plans));
    for (const StagePlan& plan : plans) {
      EXPECT_LE(plan.buffers, shape.chunks == 1 ? 6 : 2 * shape.stages + 6);
    }
  }
}

// Receives that begin where they are needed, as in 1F1B with blocking calls: stage 0
// sends its second micro-batch while stage 1 sends the first one's gradient.
TEST(Plan, SaysWhoWaitsForEver) {
  const PipelineShape shape{.stages = 2, .microbatches = 3};
  auto plans = plans_of(shape, interleaved_orders(shape, 1));
  ASSERT_NO_THROW(check(shape, plans));
  auto late = plans;
  for (StagePlan& plan : late) {
    Order actions, receives;
    for (const Action& action : plan.actions) {
      if (action.kind == Kind::recv_forward || action.kind == Kind::recv_backward) {
        receives.push_back(action);
        continue;
      }
      const auto its =
          std::find_if(receives.begin(), receives.end(), [&](const Action& receive) {
            return !is_message(action) && receive.out == action.in;
          });
      if (its != receives.end()) {
        actions.push_back(*its);
        receives.erase(its);
      }
      actions.push_back(action);
    }
    plan.actions = actions;
  }
  EXPECT_THAT([&] { check(shape, late); },
              ThrowsMessage<Error>(HasSubstr("stages wait for each other")));
  auto lost = plans;
  std::erase_if(lost[1].actions, [](const Action& action) {
    return action.kind == Kind::send_backward && action.microbatch == 1;
  });
  EXPECT_THAT([&] { check(shape, lost); },
              ThrowsMessage<Error>(HasSubstr("what stage 1 sends backward to stage 0 (2 "
                                             "messages) is not what that receives (3")));
  plans.pop_back();
  EXPECT_THROW(check(shape, plans), Error);
}

// What a stage plans with are its own order and those of its two neighbours.
TEST(Plan, NeedsItsNeighboursAlone) {
  const PipelineShape shape{.stages = 9, .chunks = 2, .microbatches = 20};
  std::vector<int> asked;
  const OrderOf order_of = [&](int stage) {
    asked.push_back(stage);
    return interleaved(shape, stage, 2);
  };
  with_messages(shape, order_of, 4);
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre(3, 4, 5));
  asked.clear();
  with_messages(shape, order_of, 0);
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre(8, 0, 1));
}

// Each stage notices by itself, before anything is sent.
TEST(Plan, RefusesNeighboursThatSendInAnotherOrder) {
  const PipelineShape shape{.stages = 2, .microbatches = 3};
  std::vector<Order> orders = interleaved_orders(shape, 1);
  for (Action& action : orders[1]) {
    if (action.kind == Kind::backward && action.microbatch > 0) {
      action.microbatch = 3 - action.microbatch;
    }
  }
  EXPECT_THAT([&] { with_messages(shape, of_these(orders), 0); },
              ThrowsMessage<Error>(HasSubstr(
                  "stage 1 sends backward of micro-batch 2 for chunk 0 in another order "
                  "than stage 0 receives it")));
}

TEST(Plan, RoutesGoRoundTheStages) {
  const PipelineShape shape{.stages = 3, .chunks = 2, .microbatches = 1};
  const auto route = [&](int stage, int chunk, Kind kind) {
    const Route to = route_of(shape, stage, {.kind = kind, .chunk = chunk});
    return fmt::format("{}.{}", to.stage, to.chunk);
  };
  EXPECT_EQ(route(0, 0, Kind::send_forward), "1.0");
  EXPECT_EQ(route(2, 0, Kind::send_forward), "0.1");
  EXPECT_EQ(route(0, 1, Kind::recv_forward), "2.0");
  EXPECT_EQ(route(0, 1, Kind::send_backward), "2.0");
  EXPECT_EQ(route(2, 0, Kind::recv_backward), "0.1");
  EXPECT_THROW(route(0, 0, Kind::recv_forward), Error);
  EXPECT_THROW(route(2, 1, Kind::send_forward), Error);
  EXPECT_THROW(route(1, 1, Kind::forward), Error);
}

}  // namespace
}  // namespace trireme::schedule

// schedule/pipeline.cpp — see pipeline.hpp.
//
// Every order is a warm-up of forward passes, then one forward and one backward pass in
// turn, then the backward passes that are left (one_and_one); the kinds differ in the
// sequence of the forward and of the backward passes and in the length of the warm-up.
// Example, 2 stages of 2 chunks, so that stage 0 has pieces 0 and 2 and stage 1 has 1 and
// 3; 4 micro-batches in 2 groups. The forward passes of stage 0 are (micro-batch.chunk)
// 0.0 1.0 0.1 1.1 2.0 3.0 2.1 3.1: a group goes through all chunks before the next one
// begins, so that the slots of one group are enough for the next.
#include "schedule/pipeline.hpp"

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::schedule {

using Kind = Action::Kind;

namespace {

void require_legal(const PipelineShape& shape, int stage) {
  TRIREME_REQUIRE(shape.stages >= 1 && shape.chunks >= 1 && shape.microbatches >= 0 &&
                      stage >= 0 && stage < shape.stages,
                  "schedule: stage {} of {} with {} each and {}", stage, shape.stages,
                  format_plural(shape.chunks, "chunk"),
                  format_plural(shape.microbatches, "micro-batch", "micro-batches"));
}

// `warmup` forward passes, then one forward and one backward pass in turn, then what is
// left of the backward passes.
Order one_and_one(const std::vector<Pass>& forward, const std::vector<Pass>& backward,
                  std::size_t warmup) {
  Order order;
  order.reserve(2 * forward.size());
  const auto add = [&](Kind kind, const Pass& pass) {
    order.push_back({.kind = kind, .microbatch = pass.microbatch, .chunk = pass.chunk});
  };
  warmup = std::min(warmup, forward.size());
  for (std::size_t i = 0; i < warmup; ++i) add(Kind::forward, forward[i]);
  for (std::size_t i = warmup; i < forward.size(); ++i) {
    add(Kind::forward, forward[i]);
    add(Kind::backward, backward[i - warmup]);
  }
  for (std::size_t i = forward.size() - warmup; i < backward.size(); ++i) {
    add(Kind::backward, backward[i]);
  }
  assign_slots(order);
  return order;
}

// A stage begins as many forward passes ahead as messages need to the last stage and
// back, and a whole group more for each chunk before the last.
int warmup_of(const PipelineShape& shape, int stage, int groups) {
  if (shape.chunks == 1) return shape.stages - stage - 1;
  const int largest = (shape.microbatches + groups - 1) / groups;
  const int group = std::max(largest, shape.stages);
  return 2 * (shape.stages - stage - 1) + (shape.chunks - 1) * group;
}

}  // namespace

// Passes go group by group, in a group chunk by chunk, and in a chunk micro-batch by
// micro-batch. The sizes of the groups differ by one at most.
std::vector<Pass> in_groups(const PipelineShape& shape, int groups, bool is_forward) {
  std::vector<Pass> passes;
  for (int group = 0; group < groups; ++group) {
    const auto microbatches = static_cast<std::int64_t>(shape.microbatches);
    const auto begin = static_cast<int>(microbatches * group / groups);
    const auto end = static_cast<int>(microbatches * (group + 1) / groups);
    for (int c = 0; c < shape.chunks; ++c) {
      const int chunk = is_forward ? c : shape.chunks - 1 - c;
      for (int m = begin; m < end; ++m) passes.push_back({m, chunk});
    }
  }
  return passes;
}

std::vector<Order> orders_of_all(const PipelineShape& shape, const OrderOf& order_of) {
  std::vector<Order> orders;
  for (int stage = 0; stage < shape.stages; ++stage) orders.push_back(order_of(stage));
  return orders;
}

Order forward_only(const PipelineShape& shape) {
  Order order;
  for (int begin = 0; begin < shape.microbatches; begin += shape.stages) {
    const int end = std::min(begin + shape.stages, shape.microbatches);
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int m = begin; m < end; ++m) {
        order.push_back({.kind = Kind::forward, .microbatch = m, .chunk = chunk});
      }
    }
  }
  return order;
}

int most_in_flight(const PipelineShape& shape, int stage, int groups) {
  return std::min(warmup_of(shape, stage, groups) + 1, shape.microbatches * shape.chunks);
}

Order all_forward_all_backward(const PipelineShape& shape, int stage) {
  require_legal(shape, stage);
  const std::vector<Pass> forward = in_groups(shape, 1, true);
  return one_and_one(forward, in_groups(shape, 1, false), forward.size());
}

Order one_forward_one_backward(const PipelineShape& shape, int stage) {
  require_legal(shape, stage);
  TRIREME_REQUIRE(shape.chunks == 1, "1F1B has one chunk on each stage, here {}",
                  shape.chunks);
  return one_and_one(in_groups(shape, 1, true), in_groups(shape, 1, false),
                     static_cast<std::size_t>(warmup_of(shape, stage, 1)));
}

int most_groups(const PipelineShape& shape) {
  return std::max(1, shape.microbatches / shape.stages);
}

Order interleaved(const PipelineShape& shape, int stage, int groups) {
  require_legal(shape, stage);
  TRIREME_REQUIRE(
      groups >= 1 && groups <= most_groups(shape),
      "interleaved: {} of {}; 1 to {} have at least one micro-batch for each of {}",
      format_plural(groups, "group"),
      format_plural(shape.microbatches, "micro-batch", "micro-batches"),
      most_groups(shape), format_plural(shape.stages, "stage"));
  return one_and_one(in_groups(shape, groups, true), in_groups(shape, groups, false),
                     static_cast<std::size_t>(warmup_of(shape, stage, groups)));
}

Order zero_bubble_by_rule(const PipelineShape& shape, int stage) {
  require_legal(shape, stage);
  const int groups = most_groups(shape);
  const std::vector<Pass> forward = in_groups(shape, groups, true);
  const std::vector<Pass> backward = in_groups(shape, groups, false);
  const std::size_t passes = forward.size();
  const auto warmup =
      std::min(static_cast<std::size_t>(warmup_of(shape, stage, groups)), passes);
  const auto delay =
      std::min(static_cast<std::size_t>(warmup_of(shape, 0, groups)) - warmup, passes);
  Order order;
  order.reserve(3 * passes);
  const auto add = [&](Kind kind, const Pass& pass) {
    order.push_back({.kind = kind, .microbatch = pass.microbatch, .chunk = pass.chunk});
  };
  for (std::size_t i = 0; i < warmup; ++i) add(Kind::forward, forward[i]);
  for (std::size_t i = 0; i < passes; ++i) {
    if (warmup + i < passes) add(Kind::forward, forward[warmup + i]);
    add(Kind::backward_input, backward[i]);
    if (i >= delay) add(Kind::backward_weight, backward[i - delay]);
  }
  for (std::size_t i = passes - delay; i < passes; ++i) {
    add(Kind::backward_weight, backward[i]);
  }
  assign_slots(order);
  return order;
}

}  // namespace trireme::schedule

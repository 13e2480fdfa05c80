// schedule/choice.cpp — see choice.hpp.
//
// What there is to choose depends on the schedule. GPipe and 1F1B have a single order.
// With several chunks on a stage 1F1B may put more micro-batches into a group than there
// are stages, which takes memory and sometimes saves time: each number of groups is an
// order, and the fastest is taken. Orders of zero bubbles are searched for. A pipeline
// that is too deep to be simulated at the start of a run takes the order of a rule, which
// a stage can make without any other. Example: 28 micro-batches on 4 stages of 3 chunks
// may go in 7 groups of 4, in 6 of up to 5, in 5 of up to 6, in 4 of 7, in 3 of up to 10
// or in 2 of 14.
#include "schedule/choice.hpp"

#include <utility>

namespace trireme::schedule {

namespace {

OrderOf orders_of(const PipelineShape& shape, PipelineSchedule kind, int groups) {
  return [=](int stage) {
    if (kind == PipelineSchedule::gpipe) return all_forward_all_backward(shape, stage);
    if (kind == PipelineSchedule::zero_bubble) return zero_bubble_by_rule(shape, stage);
    return shape.chunks == 1 ? one_forward_one_backward(shape, stage)
                             : interleaved(shape, stage, groups);
  };
}

// The numbers of groups that are worth trying. Several numbers give the same largest
// group, and only one of these is kept; groups of more micro-batches than a few for each
// stage take memory and save no time.
std::vector<int> group_counts(const PipelineShape& shape) {
  constexpr int kMostPerStage = 4;
  std::vector<int> counts;
  int size = 0;
  for (int groups = most_groups(shape); groups >= 1; --groups) {
    const int largest = (shape.microbatches + groups - 1) / groups;
    if (largest == size) continue;
    size = largest;
    if (!counts.empty() && size > kMostPerStage * shape.stages) break;
    counts.push_back(groups);
  }
  return counts;
}

// The numbers of groups among which a schedule of this kind may choose.
std::vector<int> groups_to_try(const PipelineShape& shape, PipelineSchedule kind) {
  const bool has_groups = kind == PipelineSchedule::one_f_one_b && shape.chunks > 1;
  return has_groups && is_simulated(shape, kind) ? group_counts(shape)
                                                 : std::vector{most_groups(shape)};
}

Choice searched_orders(const PipelineShape& shape, const Costs& costs) {
  const auto found =
      std::make_shared<const std::vector<Order>>(zero_bubble(shape, costs));
  auto timeline = std::make_shared<const Timeline>(simulate(shape, *found, costs));
  const double seconds = timeline->seconds;
  return {.order_of =
              [found](int stage) { return found->at(static_cast<std::size_t>(stage)); },
          .timeline = std::move(timeline),
          .groups = 1,
          .seconds = seconds};
}

}  // namespace

double passes_to_choose(const PipelineShape& shape, PipelineSchedule kind) {
  double tries = 1.0;
  // zero_bubble() makes nine searches and simulates the result of each, and its orders
  // have three passes where others have two.
  if (kind == PipelineSchedule::zero_bubble) tries = 9 * 2 * 1.5;
  if (kind == PipelineSchedule::one_f_one_b && shape.chunks > 1) {
    tries = static_cast<double>(group_counts(shape).size());
  }
  return tries * 2.0 * shape.pieces() * shape.microbatches;
}

bool is_simulated(const PipelineShape& shape, PipelineSchedule kind) {
  constexpr double kMostPasses = 4e6;
  return passes_to_choose(shape, kind) < kMostPasses;
}

std::vector<OrderOf> orders_to_try(const PipelineShape& shape, PipelineSchedule kind) {
  std::vector<OrderOf> orders;
  for (const int groups : groups_to_try(shape, kind)) {
    orders.push_back(orders_of(shape, kind, groups));
  }
  return orders;
}

Choice choose_orders(const PipelineShape& shape, PipelineSchedule kind,
                     const Costs& costs) {
  if (kind == PipelineSchedule::zero_bubble && is_simulated(shape, kind)) {
    return searched_orders(shape, costs);
  }
  const std::vector<int> counts = groups_to_try(shape, kind);
  if (counts.size() == 1) {
    return {.order_of = orders_of(shape, kind, counts.front()),
            .timeline = nullptr,
            .groups = counts.front(),
            .seconds = {}};
  }
  Choice best;
  for (const int groups : counts) {
    const OrderOf order_of = orders_of(shape, kind, groups);
    const double seconds = simulate(shape, orders_of_all(shape, order_of), costs).seconds;
    if (best.seconds && !is_less(seconds, *best.seconds)) continue;
    best = {
        .order_of = order_of, .timeline = nullptr, .groups = groups, .seconds = seconds};
  }
  return best;
}

double seconds_of(const PipelineShape& shape, const Choice& choice, const Costs& costs) {
  if (choice.seconds) return *choice.seconds;
  return simulate(shape, orders_of_all(shape, choice.order_of), costs).seconds;
}

}  // namespace trireme::schedule

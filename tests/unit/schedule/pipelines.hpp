// unit/schedule/pipelines.hpp — the pipelines that properties of schedules are tested on.
#ifndef TRIREME_TESTS_UNIT_SCHEDULE_PIPELINES_HPP_
#define TRIREME_TESTS_UNIT_SCHEDULE_PIPELINES_HPP_

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "schedule/division.hpp"

namespace trireme::schedule {

inline std::string text_of(const PipelineShape& shape) {
  return fmt::format("{} stages of {} chunks, {} micro-batches", shape.stages,
                     shape.chunks, shape.microbatches);
}

// Small ones densely, large ones by their corners; micro-batches that do and that do not
// divide into groups of the stages.
inline std::vector<PipelineShape> pipelines() {
  std::vector<PipelineShape> shapes;
  for (const int stages : {1, 2, 3, 4, 5, 7, 8, 16, 33, 64}) {
    for (const int chunks : {1, 2, 3, 4, 8}) {
      if (stages == 1 && chunks > 1) continue;
      std::set<int> counts = {1, 2, 3, stages, stages + 1, 2 * stages, 2 * stages + 1};
      if (stages > 1) counts.insert(stages - 1);
      if (stages < 8) counts.insert({4, 5, 6, 7, 8, 9, 16, 31});
      if (chunks == 1 || stages == 2) counts.insert(512);
      for (const int microbatches : counts) {
        if (stages * chunks * microbatches > 64 * 512) continue;
        shapes.push_back({stages, chunks, microbatches});
      }
    }
  }
  shapes.push_back({64, 8, 128});
  return shapes;
}

inline std::vector<Order> gpipe_orders(const PipelineShape& shape) {
  return orders_of_all(shape,
                       [&](int stage) { return all_forward_all_backward(shape, stage); });
}

// 1F1B where there is one chunk.
inline std::vector<Order> interleaved_orders(const PipelineShape& shape, int groups) {
  return orders_of_all(shape, [&](int stage) {
    return shape.chunks == 1 ? one_forward_one_backward(shape, stage)
                             : interleaved(shape, stage, groups);
  });
}

inline std::vector<Order> zero_bubble_rule_orders(const PipelineShape& shape) {
  return orders_of_all(shape,
                       [&](int stage) { return zero_bubble_by_rule(shape, stage); });
}

// Costs that are the same for every piece.
inline Costs equal_costs(const PipelineShape& shape, const PieceCost& cost = {}) {
  Costs costs;
  costs.pieces.assign(static_cast<std::size_t>(shape.pieces()), cost);
  return costs;
}

// Idle time of the stage that has most work, as a share of that work. For equal stages
// it is (p - 1)/m with 1F1B and (p - 1)/(v m) interleaved (Narayanan et al. 2021, 2.2).
inline double bubble_of(const Timeline& timeline) {
  const double most = *std::max_element(timeline.busy.begin(), timeline.busy.end());
  return (timeline.seconds - most) / most;
}

// Pieces that differ as embedding, layers and head do.
inline Costs unequal_costs(const PipelineShape& shape) {
  Costs costs = equal_costs(shape);
  for (std::size_t g = 0; g < costs.pieces.size(); ++g) {
    const double layers = 1.0 + 0.3 * static_cast<double>(g * 7 % 5);
    costs.pieces[g] = {layers, 1.1 * layers, 0.9 * layers};
  }
  costs.pieces.back().forward += 1.7;
  costs.message = 0.05;
  costs.message_work = 0.01;
  return costs;
}

}  // namespace trireme::schedule

#endif  // TRIREME_TESTS_UNIT_SCHEDULE_PIPELINES_HPP_

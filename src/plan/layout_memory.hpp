// plan/layout_memory.hpp — what a layout takes of a device's memory: estimated from the
// workload, for searches, which ask for thousands of layouts; and planned as a run plans
// it, for the few that are told.
#ifndef TRIREME_PLAN_LAYOUT_MEMORY_HPP_
#define TRIREME_PLAN_LAYOUT_MEMORY_HPP_

#include <cstddef>
#include <map>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "plan/machine.hpp"
#include "plan/workload.hpp"

namespace trireme::plan {

// Bytes of a rank of the stage that takes most.
struct LayoutMemory {
  double weights = 0.0, gradients = 0.0, optimizer = 0.0;
  double activations = 0.0;  // of micro-batches in flight
  double scratch = 0.0;      // at a time
  double other = 0.0;        // batches, buffers of messages, ZeRO and products
  double reserved = 0.0;     // Device::reserved

  double total() const {
    return weights + gradients + optimizer + activations + scratch + other + reserved;
  }
};

// Remembers what schedules keep at a time: searches ask for the same ones again and
// again.
class MemoryModel {
 public:
  // `deck`: the model, and how its products are computed.
  explicit MemoryModel(const config::Deck& deck);

  // `split`: layers of each piece.
  LayoutMemory of(const Machine& machine, Workloads& workloads,
                  const config::Deck& layout, const std::vector<index_t>& split);

  // What a stage keeps at a time, by its order of passes.
  struct Slots {
    // Of each chunk: micro-batches in flight, and those whose weight passes are still to
    // come.
    std::vector<double> saved, held;
    double buffers = 0.0;  // for messages between stages
  };

 private:
  struct SlotsKey {
    int stages = 1, chunks = 1, microbatches = 1, stage = 0;
    config::PipelineSchedule schedule = config::PipelineSchedule::one_f_one_b;
    auto operator<=>(const SlotsKey&) const = default;
  };
  struct Kind;
  // That blocks share; which of them do.
  struct Table {
    double elements = 0.0;
    std::vector<std::size_t> users;
  };

  const Slots& slots_of(const config::Deck& layout, int stage);
  double elements_of_others(const Kind& kind, int stage, int chunk) const;
  LayoutMemory stage_memory(const Kind& kind, int stage);

  std::vector<bool> is_layer_;  // of each block
  std::vector<Table> tables_;
  double products_ = 0.0;             // what products keep for themselves
  std::vector<double> layer_scores_;  // of attention, of a sample: of each class
  std::map<SlotsKey, Slots> slots_;
};

// The same by the plan of the deck's own steps, in the order of passes that a run
// chooses. Of the stages with the same layers the first is planned.
LayoutMemory planned_memory(const Machine& machine, const config::Deck& deck);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_LAYOUT_MEMORY_HPP_

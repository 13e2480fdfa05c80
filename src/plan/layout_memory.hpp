// plan/layout_memory.hpp — what a layout takes of a device's memory, estimated from the
// workload: for searches, which ask for thousands of layouts. What a run really takes,
// plan_memory() of deck_memory.hpp tells.
#ifndef TRIREME_PLAN_LAYOUT_MEMORY_HPP_
#define TRIREME_PLAN_LAYOUT_MEMORY_HPP_

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
  double other = 0.0;        // batches, buffers of messages and of ZeRO
  double reserved = 0.0;     // Device::reserved

  double total() const {
    return weights + gradients + optimizer + activations + scratch + other + reserved;
  }
};

// `split`: layers of each piece.
LayoutMemory layout_memory(const Machine& machine, Workloads& workloads,
                           const config::Deck& layout, const std::vector<index_t>& split);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_LAYOUT_MEMORY_HPP_

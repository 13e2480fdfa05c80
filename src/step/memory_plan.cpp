// step/memory_plan.cpp — see memory_plan.hpp.
#include "step/memory_plan.hpp"

namespace trireme::step {

std::size_t MemoryPlan::saved() const {
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < workspace.saved.size(); ++c) {
    bytes += workspace.saved[c] * static_cast<std::size_t>(workspace.slots[c]);
  }
  return bytes;
}

std::size_t MemoryPlan::total() const {
  return workspace.total() + weights + gradients + optimizer + batch + buffers +
         products + generation;
}

}  // namespace trireme::step

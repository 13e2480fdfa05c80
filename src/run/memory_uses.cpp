// run/memory_uses.cpp — see memory_uses.hpp.
#include "run/memory_uses.hpp"

namespace trireme::run {

namespace {

report::MemoryUse row(const char* name, std::size_t planned, std::size_t measured) {
  return {name, static_cast<double>(planned), static_cast<double>(measured)};
}

}  // namespace

std::vector<report::MemoryUse> memory_uses(const step::MemoryUse& use) {
  const auto& [plan, measured] = use;
  const auto scratch = [](const step::MemoryPlan& memory) {
    return memory.workspace.scratch + memory.workspace.held_bytes();
  };
  return {row("weights", plan.weights, measured.weights),
          row("gradients", plan.gradients, measured.gradients),
          row("optimizer", plan.optimizer, measured.optimizer),
          row("activations", plan.saved(), measured.saved()),
          row("scratch", scratch(plan), scratch(measured)),
          row("batch", plan.batch, measured.batch),
          row("buffers", plan.buffers, measured.buffers),
          row("products", plan.products, measured.products)};
}

std::vector<report::MemoryUse> device_uses(const plan::LibraryBytes& planned,
                                           const plan::LibraryBytes& measured,
                                           std::size_t planned_by_program,
                                           const DeviceBytes& now) {
  if (now.total == 0) return {};
  return {row("messages", planned.messages, measured.messages),
          row("context", planned.context, measured.context),
          row("device", planned_by_program + planned.total(),
              static_cast<std::size_t>(now.total - now.free))};
}

}  // namespace trireme::run

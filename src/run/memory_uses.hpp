// run/memory_uses.hpp — the memory of a run beside its plan, by category, as the table at
// the end has it.
#ifndef TRIREME_RUN_MEMORY_USES_HPP_
#define TRIREME_RUN_MEMORY_USES_HPP_

#include <cstddef>
#include <vector>

#include "base/device.hpp"
#include "plan/device_memory.hpp"
#include "report/section_table.hpp"
#include "step/replica.hpp"

namespace trireme::run {

// What the step has. The same categories on every rank.
std::vector<report::MemoryUse> memory_uses(const step::MemoryUse& use);

// What libraries have of a device, and all that is in use there: as planned, with
// `planned_by_program` beside it, and as it came to be. `measured` is of before the model
// is there, `now` of the end. Nothing where there is no device.
std::vector<report::MemoryUse> device_uses(const plan::LibraryBytes& planned,
                                           const plan::LibraryBytes& measured,
                                           std::size_t planned_by_program,
                                           const DeviceBytes& now);

}  // namespace trireme::run

#endif  // TRIREME_RUN_MEMORY_USES_HPP_

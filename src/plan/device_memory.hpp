// plan/device_memory.hpp — whether a run fits the memory of its device, told before the
// first step: by category, how much too large it is, and what would make it smaller.
//
// Beside what the program plans for itself a device holds what libraries take there
// (docs/math/memory.md): NCCL's buffers, and CUDA's context. A dry run estimates both. A
// run has the context, and NCCL the communicators of its groups, when it asks how much is
// free: only channels between stages are still to come then.
#ifndef TRIREME_PLAN_DEVICE_MEMORY_HPP_
#define TRIREME_PLAN_DEVICE_MEMORY_HPP_

#include <cstddef>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "comm/process_groups.hpp"
#include "config/deck.hpp"
#include "step/memory_plan.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

// What carries a run's messages between ranks.
enum class Carrier { host, device };

// What CUDA takes for a process on an A100 or H100 with its modules loaded.
inline constexpr std::size_t kContextBytes = std::size_t{640} << 20;

// What carries the messages of these groups, which send already.
Carrier carrier_of(const comm::ProcessGroups& groups);

// What NCCL takes of the device for these groups, estimated. 0 where messages go through
// the host.
std::size_t message_bytes(const comm::ProcessGroups& groups, Carrier carrier);
// What of it is still to come: for planned groups all, for those that send over NCCL
// already the channels between neighbouring stages.
std::size_t message_bytes_to_come(const comm::ProcessGroups& groups, Carrier carrier);

// What libraries have of a device beside the plan of the program.
struct LibraryBytes {
  std::size_t messages = 0;  // NCCL's buffers
  std::size_t context = 0;   // CUDA's
  std::size_t tiles = 0;     // of attention without tensor cores, in a pool of Kokkos'
  std::size_t total() const { return messages + context + tiles; }
};
// Estimated; nothing where kernels run on the host's cores.
LibraryBytes library_bytes(const comm::ProcessGroups& groups, Carrier carrier,
                           const config::Deck& deck);

// What a rank takes of its device from now on.
struct DeviceNeed {
  step::MemoryPlan plan;
  std::size_t messages = 0;  // message_bytes_to_come()
  std::size_t tiles = 0;     // as LibraryBytes has them, which the first step takes
  std::size_t total() const { return plan.total() + messages + tiles; }
};
DeviceNeed device_need(step::Replica& replica, const config::Deck& deck, Carrier carrier);

// A setting of a deck with which a rank would take less.
struct Saving {
  std::string setting;  // "memory.recompute=full"
  std::size_t total = 0;
};
// Those that save a hundredth or more of what the deck's neediest stage takes, the most
// first: recomputation, ZeRO, sequence parallelism, smaller micro-batches, narrow
// gradients, and twice the tensor or pipeline ranks for half of the data ranks. Each is
// planned anew.
std::vector<Saving> savings(const config::Deck& deck, Carrier carrier);

// Of the memory that is free when a run asks: for kernels that libraries load when they
// are first used, and for the rounding of allocations to pages of 2 MiB.
inline constexpr std::size_t kReserveBytes = std::size_t{128} << 20;
// What a plan may take: what is free but for the reserve, and what matrix products keep
// already (`products`), which the plan has.
DeviceBytes usable_bytes(const DeviceBytes& now, std::size_t products);

// What is wrong where a device has less memory free than is needed, as a table; empty
// where there is room. `whose`: "rank 3 on node7".
std::string device_problem(const DeviceNeed& need, const std::string& device,
                           const DeviceBytes& bytes, const std::string& whose,
                           const std::vector<Saving>& savings);

// Collective. InputError on all ranks, with the table of the first rank, where a rank
// needs more than usable_bytes() says that its device has.
void require_device_memory(comm::Communicator& world, const std::string& host,
                           const config::Deck& deck, step::Replica& replica,
                           const std::string& device, const DeviceBytes& bytes);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_DEVICE_MEMORY_HPP_

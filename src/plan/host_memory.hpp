// plan/host_memory.hpp — whether what a run on GPUs keeps in host memory fits its nodes,
// told before the first step: by category, how much too large it is, and what to do.
//
// That is the copy of the state which a checkpoint is written from (checkpoint.async).
// It is page-locked, so that the device copies to it by itself: none of it can be put on
// disk where memory is short, and the system ends a process then.
#ifndef TRIREME_PLAN_HOST_MEMORY_HPP_
#define TRIREME_PLAN_HOST_MEMORY_HPP_

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "config/deck.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

// Of a rank, or of all ranks of a node together.
struct HostNeed {
  std::size_t weights = 0;    // the copy's
  std::size_t optimizer = 0;  // both moments
  std::size_t total() const { return weights + optimizer; }
};
// Of this rank.
HostNeed host_need(step::Replica& replica, const config::Deck& deck);

// What is wrong where a node has less memory free than its ranks need, as a table; empty
// where there is room, or where it is not known (0).
std::string host_problem(const HostNeed& of_node, int ranks, const std::string& host,
                         std::int64_t free);

// Collective. InputError on all ranks, with the table of the first node, where the ranks
// of a node need more than it has free: `free` bytes (available_memory_now()) on `host`,
// this rank's.
void require_host_memory(comm::Communicator& world, const std::string& host,
                         const HostNeed& need, std::int64_t free);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_HOST_MEMORY_HPP_

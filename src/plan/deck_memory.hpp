// plan/deck_memory.hpp — what a deck's whole training takes on a rank: the memory of its
// steps (step/memory_plan.hpp), and of what the deck asks for beside them.
#ifndef TRIREME_PLAN_DECK_MEMORY_HPP_
#define TRIREME_PLAN_DECK_MEMORY_HPP_

#include <cstddef>

#include "comm/process_groups.hpp"
#include "config/deck.hpp"
#include "step/memory_plan.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

// The groups of the first rank of a pipeline stage; they send nothing.
comm::ProcessGroups planned_groups(const config::ParallelConfig& parallel, int stage);

// What products of matrices keep for themselves on this machine, which need not be the
// run's: where it has no products as the deck wants them, as it would compute them
// itself.
std::size_t bytes_of_products(const config::Deck& deck);

// What the deck's training takes on this rank, its samples of text included.
step::MemoryPlan plan_memory(step::Replica& replica, const config::Deck& deck);
// The plan of a step, and with it what the deck asks for beside steps.
step::MemoryPlan with_all_else(step::MemoryPlan plan, step::Replica& replica,
                               const config::Deck& deck);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_DECK_MEMORY_HPP_

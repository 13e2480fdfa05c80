// step/memory_plan.hpp — how much memory a run takes, and what for.
#ifndef TRIREME_STEP_MEMORY_PLAN_HPP_
#define TRIREME_STEP_MEMORY_PLAN_HPP_

#include <array>
#include <cstddef>

#include "tensor/arena.hpp"

namespace trireme::step {

struct MemoryPlan {
  Workspace::Plan workspace;
  std::size_t weights = 0;  // master weights, and the compute copy where there is one
  std::size_t gradients = 0;
  std::size_t optimizer = 0;  // both moments
  std::size_t batch = 0;      // the fields of the micro-batches under way
  // Gathered weights, gradients on their way, what goes from stage to stage, copies of
  // messages on the host; not what the MPI library keeps for itself.
  std::size_t buffers = 0;
  // What products of matrices keep for themselves, at most: a matter of the device's
  // instructions and threads, and set by who knows the Exec.
  std::size_t products = 0;
  // Samples of text in the loop (run.sample_every): set by who takes them.
  std::size_t generation = 0;
  // A copy of what this rank saves, on the host (checkpoint.async): not in total(), which
  // is of the device. Set by who saves.
  std::size_t checkpoint_copy = 0;
  // What saved activations are for; they add up to the saved part of the workspace.
  std::array<std::size_t, kCategoryCount> saved_by_category{};

  std::size_t saved() const;
  std::size_t total() const;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_MEMORY_PLAN_HPP_

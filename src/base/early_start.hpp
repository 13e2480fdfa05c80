// base/early_start.hpp — kernels of a Graph that begin while the one before still runs.
//
// Between two kernels of a GPU's queue lie some microseconds in which nothing is read:
// the last blocks of one end, those of the other are handed out and ask for their first
// bytes. Where kernels are as short as a decoded token's, that is half of the time. Teams
// that launch_early_teams() launches in a Graph begin as soon as every block of the
// kernel before them has called let_next_start(), or has ended. All their threads call
//
//   let_next_start();     // first of all
//   ...                   // reads what no kernel ahead in the Graph writes, and asks for
//                         // lines of memory, whatever they hold
//   wait_for_previous();  // also threads that have nothing to do
//
// so that each kernel ends after the one before it, and finds what all before it wrote.
//
// This is programmatic dependent launch, of GPUs since Hopper (CUDA C++ Programming
// Guide, "Programmatic Dependent Launch and Synchronization"). Elsewhere, and outside of
// a Graph, kernels run one after the other, and the calls do nothing.
#ifndef TRIREME_BASE_EARLY_START_HPP_
#define TRIREME_BASE_EARLY_START_HPP_

#include <cstddef>

#include "base/exec.hpp"

namespace trireme {

KOKKOS_FORCEINLINE_FUNCTION void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

KOKKOS_FORCEINLINE_FUNCTION void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Bytes that a GPU's caches bring at once, and a call that asks for them to come to the
// one that all multiprocessors share.
inline constexpr int kDeviceLine = 128;
KOKKOS_FORCEINLINE_FUNCTION void ask_for_line([[maybe_unused]] const void* address) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

namespace detail {
// Of the next launch, where it is captured behind a single kernel, on a GPU that can.
void let_launch_start_early(const Exec& exec);
}  // namespace detail

// launch_teams() of a functor whose threads make the calls above.
template <class Bounds = Kokkos::LaunchBounds<>, class Functor>
void launch_early_teams(const Exec& exec, const Kernel& kernel, index_t teams,
                        int device_threads, const Functor& functor,
                        std::size_t scratch_bytes = 0, int host_threads = 1) {
  if constexpr (!kHostExecution) {
    if (teams > 0 && !exec.is_shape_only()) {
      exec.keep_team_scratch();  // would itself be the next launch, the first time
      detail::let_launch_start_early(exec);
    }
  }
  launch_teams<Bounds>(exec, kernel, teams, device_threads, functor, scratch_bytes,
                       host_threads);
}

}  // namespace trireme

#endif  // TRIREME_BASE_EARLY_START_HPP_

// kernels/impl/thread_count.hpp — how many threads a launch has, for kernels that cut
// their work by it.
#ifndef TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_
#define TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_

#include "base/exec.hpp"
#include "base/team_threads.hpp"

namespace trireme::kernels::impl {

// Asked once, because Kokkos allocates to tell. Before Kokkos, as many as it would have.
inline index_t thread_count() {
  if (!Kokkos::is_initialized()) return planned_team_threads();
  static const index_t threads = ExecSpace().concurrency();
  return threads;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_

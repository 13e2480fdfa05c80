// kernels/impl/thread_count.hpp — how many threads a launch has, for kernels that cut
// their work by it.
#ifndef TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_
#define TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_

#include "base/exec.hpp"

namespace trireme::kernels::impl {

// Asked once, because Kokkos allocates to tell.
inline index_t thread_count() {
  static const index_t threads = ExecSpace().concurrency();
  return threads;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_THREAD_COUNT_HPP_

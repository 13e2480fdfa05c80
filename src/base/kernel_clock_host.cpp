// base/kernel_clock_host.cpp — kernels that run on the host's cores have ended when their
// launch returns.
#include "base/kernel_clock.hpp"

namespace trireme {

std::unique_ptr<KernelClock> make_kernel_clock(const Kokkos::DefaultExecutionSpace&) {
  return make_host_clock();
}

}  // namespace trireme

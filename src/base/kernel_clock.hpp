// base/kernel_clock.hpp — how long stretches of a queue's work take, measured where the
// work runs: by the host's clock, or by events on a device.
//
// Stretches have small numbers, which the caller gives; a number is used again once its
// seconds were asked for. They may lie one inside the other.
#ifndef TRIREME_BASE_KERNEL_CLOCK_HPP_
#define TRIREME_BASE_KERNEL_CLOCK_HPP_

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <memory>

namespace trireme {

class KernelClock {
 public:
  KernelClock() = default;
  virtual ~KernelClock() = default;
  KernelClock(const KernelClock&) = delete;
  KernelClock& operator=(const KernelClock&) = delete;

  virtual void begin(std::size_t stretch) = 0;
  virtual void end(std::size_t stretch) = 0;
  // Waits for the stretch to be over.
  virtual double seconds(std::size_t stretch) = 0;
};

// For work that is done when its launch returns.
std::unique_ptr<KernelClock> make_host_clock();
// For what is launched on this space.
std::unique_ptr<KernelClock> make_kernel_clock(
    const Kokkos::DefaultExecutionSpace& space);

}  // namespace trireme

#endif  // TRIREME_BASE_KERNEL_CLOCK_HPP_

// base/exec.cpp — what launches tell of themselves: see exec.hpp.
#include "base/exec.hpp"

#include "base/kernel_profile.hpp"

namespace trireme {

void KernelCall::begin(const Kernel& kernel) const {
  timers_->profile()->begin(kernel, timers_->section(), timers_->component());
}

void KernelCall::end() const {
  timers_->profile()->end();
}

LibraryCall::LibraryCall(const Exec& exec, const Kernel& kernel)
    : exec_(exec), is_region_(Kokkos::Profiling::profileLibraryLoaded()) {
  // Making a text allocates, which only a tool that wants it has to bear.
  if (is_region_) Kokkos::Profiling::pushRegion(kernel.label);
  call_.emplace(exec, kernel);
}

void LibraryCall::end() {
  call_.reset();
  if (std::exchange(is_region_, false)) Kokkos::Profiling::popRegion();
}

void LibraryCall::finish() {
  end();
  exec_.idle();
}

}  // namespace trireme

// base/exec.cpp — what launches tell of themselves: see exec.hpp.
#include "base/exec.hpp"

#include <unordered_map>

#include "base/kernel_profile.hpp"

namespace trireme {

namespace {

// Kokkos wants a std::string; kept, to allocate each once.
const std::string& region_text(const char* label) {
  static thread_local std::unordered_map<const char*, std::string> texts;
  return texts.try_emplace(label, label).first->second;
}

}  // namespace

void KernelCall::begin(const Kernel& kernel) const {
  timers_->profile()->begin(kernel, timers_->section(), timers_->component());
}

void KernelCall::end() const {
  timers_->profile()->end();
}

LibraryCall::LibraryCall(const Exec& exec, const Kernel& kernel)
    : exec_(exec), is_region_(Kokkos::Profiling::profileLibraryLoaded()) {
  // Asked for without a tool, too: a tool that comes later finds the text.
  const std::string& text = region_text(kernel.label);
  if (is_region_) Kokkos::Profiling::pushRegion(text);
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

// base/exec.cpp — what launches tell of themselves: see exec.hpp.
#include "base/exec.hpp"

#include <unordered_map>

#include "base/error.hpp"
#include "base/kernel_profile.hpp"

namespace trireme {

namespace {

// Kokkos wants a std::string; kept, to allocate each once.
const std::string& region_text(const char* label) {
  static thread_local std::unordered_map<const char*, std::string> texts;
  return texts.try_emplace(label, label).first->second;
}

struct NoWork {
  KOKKOS_FUNCTION void operator()(const TeamMember&) const {}
};

}  // namespace

void Exec::refuse_space() {
  throw Error("something is to run on a shape-only Exec, which has nowhere to run it");
}

void Exec::keep_team_scratch() const {
  if (queue_->has_team_scratch) return;
  queue_->has_team_scratch = true;
  constexpr int kBytes = 16;
  TeamPolicy policy(space(), 1, 1, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(kBytes));
  Kokkos::parallel_for("trireme::base::keep_team_scratch", policy, NoWork());
}

void KernelCall::begin(const Kernel& kernel) const {
  timers_->profile()->begin(kernel, timers_->section(), timers_->component());
}

void KernelCall::end() const {
  timers_->profile()->end();
}

// The text is asked for whether or not there is a tool: one that comes later finds it.
LibraryCall::LibraryCall(const Exec& exec, const Kernel& kernel) : exec_(exec) {
  Kokkos::Profiling::pushRegion(region_text(kernel.label));
  call_.emplace(exec, kernel);
}

void LibraryCall::end() {
  if (!call_) return;
  call_.reset();
  Kokkos::Profiling::popRegion();
}

void LibraryCall::finish() {
  end();
  exec_.idle();
}

}  // namespace trireme

// base/timers.cpp — see timers.hpp.
#include "base/timers.hpp"

#include <Kokkos_Core.hpp>
#include <string>

#include "base/exec.hpp"
#include "base/kernel_profile.hpp"

namespace trireme {

std::string_view name_of(Section section) {
  constexpr std::array<std::string_view, kSectionCount> names = {
      "data", "forward", "backward", "optimizer", "communication", "checkpoint", "other"};
  return names[static_cast<std::size_t>(section)];
}

std::string_view name_of(Phase phase) {
  constexpr std::array<std::string_view, kPhaseCount> names = {
      "step", "validation", "checkpoint", "sample", "other"};
  return names[static_cast<std::size_t>(phase)];
}

std::string_view name_of(Component component) {
  constexpr std::array<std::string_view, kComponentCount> names = {
      "none", "embedding", "norms", "attention", "mlp", "head"};
  return names[static_cast<std::size_t>(component)];
}

void Timers::charge() {
  const auto now = Clock::now();
  seconds_[static_cast<std::size_t>(phase_)][static_cast<std::size_t>(section())] +=
      std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

void Timers::enter(Section section) {
  charge();
  stack_.push_back({section, component()});
}

void Timers::leave() {
  charge();
  stack_.pop_back();
}

Timers::SectionSeconds Timers::seconds() {
  charge();
  SectionSeconds sum{};
  for (const SectionSeconds& of_phase : seconds_) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += of_phase[i];
  }
  return sum;
}

Timers::SectionSeconds Timers::seconds(Phase phase) {
  charge();
  return seconds_[static_cast<std::size_t>(phase)];
}

double Timers::total_seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Timers::reset() {
  start_ = last_ = Clock::now();
  seconds_.fill({});
}

Region::Region(Timers& timers, Section section, const RegionLabel& label)
    : timers_(timers), section_(section), label_(label) {
  timers_.enter(section);
  if (timers_.trace() != nullptr) begin_ = Timers::Clock::now();
  // Short enough for std::string to hold without allocating.
  Kokkos::Profiling::pushRegion(std::string(name_of(section)));
}

Region::~Region() {
  Kokkos::Profiling::popRegion();
  timers_.leave();
  Trace* const trace = timers_.trace();
  if (trace == nullptr || begin_ == Timers::Clock::time_point{}) return;
  const char* name = label_.name != nullptr ? label_.name : name_of(section_).data();
  if (*name == '\0') return;
  trace->add({.name = name,
              .begin = begin_,
              .end = Timers::Clock::now(),
              .microbatch = label_.microbatch,
              .chunk = label_.chunk});
}

PhaseRegion::PhaseRegion(Timers& timers, Phase phase)
    : timers_(timers), before_(timers.phase_) {
  timers_.charge();
  timers_.phase_ = phase;
}

PhaseRegion::~PhaseRegion() {
  timers_.charge();
  timers_.phase_ = before_;
}

ComponentRegion::ComponentRegion(Timers* timers, Component component) : timers_(timers) {
  if (timers_ == nullptr) return;
  timers_->stack_.push_back({timers_->section(), component});
  if (KernelProfile* const profile = timers_->profile()) {
    profile->note_visit(timers_->section(), component);
  }
  // A launch on a device has not run when its region ends, and is not waited for here.
  if (kHostExecution && timers_->trace() != nullptr) begin_ = Timers::Clock::now();
  Kokkos::Profiling::pushRegion(std::string(name_of(component)));
}

ComponentRegion::~ComponentRegion() {
  if (timers_ == nullptr) return;
  Kokkos::Profiling::popRegion();
  const Component component = timers_->component();
  timers_->stack_.pop_back();
  Trace* const trace = timers_->trace();
  if (trace == nullptr || begin_ == Timers::Clock::time_point{}) return;
  trace->add(
      {.name = name_of(component).data(), .begin = begin_, .end = Timers::Clock::now()});
}

}  // namespace trireme

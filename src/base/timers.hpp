// base/timers.hpp — where the wall time of a run goes: one clock per section, nested
// sections counted once (the inner one's time is taken from the outer one).
//
// Regions are the one mechanism behind four views of a run: the seconds of the sections,
// the timeline of a trace, the profile of the kernels that are launched within them, and
// what Kokkos Tools see. A Section says what the run is at; a Component, inside of it,
// what of the model that is for, and a Phase, around it, what of the run.
#ifndef TRIREME_BASE_TIMERS_HPP_
#define TRIREME_BASE_TIMERS_HPP_

#include <array>
#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

#include "base/trace.hpp"

namespace trireme {

enum class Section {
  data,
  forward,
  backward,
  optimizer,
  communication,
  checkpoint,
  other
};
inline constexpr int kSectionCount = 7;
std::string_view name_of(Section section);

// What of a run the time is spent on: each second of a section lies in one of them.
enum class Phase {
  step,
  validation,
  checkpoint,  // what training stands still for
  sample,      // of text
  other
};
inline constexpr int kPhaseCount = 5;
std::string_view name_of(Phase phase);

// What of a model is computed; none outside of its layers. Norms are all of a layer that
// is neither attention nor the feed-forward block: residuals and dropout, too.
enum class Component { none, embedding, norms, attention, mlp, head };
inline constexpr int kComponentCount = 6;
std::string_view name_of(Component component);

class KernelProfile;

class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  Timers() {
    stack_.reserve(16);
    start_ = last_ = Clock::now();
  }

  using SectionSeconds = std::array<double, kSectionCount>;

  // Seconds in each section since construction (or reset); time in none is
  // Section::other. In all phases, or in one.
  SectionSeconds seconds();
  SectionSeconds seconds(Phase phase);
  double total_seconds() const;
  void reset();

  // Regions are recorded there, too, until null is given.
  void trace_to(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }
  // The same with what a device does, which is there when the trace has ended. Both wait
  // for the device.
  void begin_trace(Trace& trace) {
    trace_sources_->begin();
    trace_to(&trace);
  }
  void end_trace() {
    trace_sources_->end(*trace_);
    trace_to(nullptr);
  }
  const std::shared_ptr<TraceSources>& trace_sources() const { return trace_sources_; }
  // What is launched is recorded there, until null is given: base/kernel_profile.hpp.
  void profile_to(KernelProfile* profile) { profile_ = profile; }
  KernelProfile* profile() const { return profile_; }

  // Of the innermost regions.
  Section section() const {
    return stack_.empty() ? Section::other : stack_.back().section;
  }
  Component component() const {
    return stack_.empty() ? Component::none : stack_.back().component;
  }

 private:
  friend class Region;
  friend class ComponentRegion;
  friend class PhaseRegion;
  struct Level {
    Section section;
    Component component;
  };
  void enter(Section section);
  void leave();
  void charge();

  Clock::time_point start_, last_;
  std::vector<Level> stack_;
  Phase phase_ = Phase::other;
  std::array<SectionSeconds, kPhaseCount> seconds_{};
  Trace* trace_ = nullptr;
  std::shared_ptr<TraceSources> trace_sources_ = std::make_shared<TraceSources>();
  KernelProfile* profile_ = nullptr;
};

// What a trace shows of a region.
struct RegionLabel {
  const char* name = nullptr;  // null: the section's; "": nothing
  int microbatch = -1, chunk = -1;
};

// Charges its lifetime to a section, and shows it to Kokkos Tools as a region.
class Region {
 public:
  Region(Timers& timers, Section section, const RegionLabel& label = {});
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  Timers& timers_;
  Section section_;
  RegionLabel label_;
  Timers::Clock::time_point begin_{};  // where it is recorded
};

// Says for its lifetime which phase the run is in; the one before goes on behind it.
class PhaseRegion {
 public:
  PhaseRegion(Timers& timers, Phase phase);
  ~PhaseRegion();
  PhaseRegion(const PhaseRegion&) = delete;
  PhaseRegion& operator=(const PhaseRegion&) = delete;

 private:
  Timers& timers_;
  Phase before_;
};

// Says for its lifetime which component is computed, to a trace, a profile and Kokkos
// Tools. Without timers (planning, tests of a layer) it does nothing.
class ComponentRegion {
 public:
  ComponentRegion(Timers* timers, Component component);
  ~ComponentRegion();
  ComponentRegion(const ComponentRegion&) = delete;
  ComponentRegion& operator=(const ComponentRegion&) = delete;

 private:
  Timers* timers_;
  Timers::Clock::time_point begin_{};  // where it is recorded
};

}  // namespace trireme

#endif  // TRIREME_BASE_TIMERS_HPP_

// base/timers.hpp — where the wall time of a run goes: one clock per section, nested
// sections counted once (the inner one's time is taken from the outer one).
#ifndef TRIREME_BASE_TIMERS_HPP_
#define TRIREME_BASE_TIMERS_HPP_

#include <array>
#include <chrono>
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

class Timers {
 public:
  using Clock = std::chrono::steady_clock;

  Timers() {
    stack_.reserve(16);
    start_ = last_ = Clock::now();
  }

  // Seconds in each section since construction (or reset); time in none is
  // Section::other.
  std::array<double, kSectionCount> seconds();
  double total_seconds() const;
  void reset();

  // Regions are recorded there, too, until null is given.
  void trace_to(Trace* trace) { trace_ = trace; }
  Trace* trace() const { return trace_; }

 private:
  friend class Region;
  void enter(Section section);
  void leave();
  void charge();

  Clock::time_point start_, last_;
  std::vector<Section> stack_;
  std::array<double, kSectionCount> seconds_{};
  Trace* trace_ = nullptr;
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

}  // namespace trireme

#endif  // TRIREME_BASE_TIMERS_HPP_

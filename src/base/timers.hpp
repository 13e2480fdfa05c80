// base/timers.hpp — where the wall time of a run goes: one clock per section, nested
// sections counted once (the inner one's time is taken from the outer one).
#ifndef TRIREME_BASE_TIMERS_HPP_
#define TRIREME_BASE_TIMERS_HPP_

#include <array>
#include <chrono>
#include <string_view>
#include <vector>

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

 private:
  friend class Region;
  void enter(Section section);
  void leave();
  void charge();

  Clock::time_point start_, last_;
  std::vector<Section> stack_;
  std::array<double, kSectionCount> seconds_{};
};

// Charges its lifetime to a section, and shows it to Kokkos Tools as a region.
class Region {
 public:
  Region(Timers& timers, Section section);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  Timers& timers_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_TIMERS_HPP_

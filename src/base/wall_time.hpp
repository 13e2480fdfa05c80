// base/wall_time.hpp — the time of day, for what outlives the process: files and logs.
#ifndef TRIREME_BASE_WALL_TIME_HPP_
#define TRIREME_BASE_WALL_TIME_HPP_

#include <chrono>
#include <string>

namespace trireme {

// Seconds since 1970.
double wall_seconds();
// "2025-03-01T12:30:05.250Z"
std::string iso_time(double wall_seconds);

// Seconds by a clock that nobody sets: since some moment, and since the one that is
// given.
double steady_seconds();
double seconds_since(std::chrono::steady_clock::time_point begin);

// The time of day as it was at the construction, and since then by a clock that nobody
// sets: what is noted with it can be subtracted, also where a daemon or a person moves
// the system's clock meanwhile.
class SteadyWallTime {
 public:
  using Clock = std::chrono::steady_clock;
  double at(Clock::time_point time) const {
    return begin_ + std::chrono::duration<double>(time - begin_time_).count();
  }
  double now() const { return at(Clock::now()); }  // seconds since 1970

 private:
  Clock::time_point begin_time_ = Clock::now();
  double begin_ = wall_seconds();
};

}  // namespace trireme

#endif  // TRIREME_BASE_WALL_TIME_HPP_

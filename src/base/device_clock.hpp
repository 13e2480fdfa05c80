// base/device_clock.hpp — a device's clock beside the host's: what its marks show, as
// times of the host.
#ifndef TRIREME_BASE_DEVICE_CLOCK_HPP_
#define TRIREME_BASE_DEVICE_CLOCK_HPP_

#include <algorithm>
#include <chrono>

namespace trireme {

// Both clocks are read twice, some time apart, and between and beside these readings one
// is a line of the other. A reading is right to half of the time that it takes, some
// microseconds on a GPU that is idle: of several the fastest counts.
class DeviceClock {
 public:
  using Clock = std::chrono::steady_clock;

  // read() returns the device's seconds at a moment between its call and its return.
  template <class Read>
  void begin(const Read& read) {
    first_ = last_ = fastest_of(read);
  }
  template <class Read>
  void end(const Read& read) {
    last_ = fastest_of(read);
  }

  Clock::time_point host_time(double device) const {
    const std::chrono::duration<double> host = last_.host - first_.host;
    const double passed = last_.device - first_.device;
    // Readings that lie close together say nothing of the rate.
    const double rate = passed > kApart ? host.count() / passed : 1.0;
    return first_.host +
           std::chrono::duration_cast<Clock::duration>(
               std::chrono::duration<double>(rate * (device - first_.device)));
  }

 private:
  static constexpr int kRounds = 8;
  static constexpr double kApart = 0.1;  // s
  struct Reading {
    double device = 0.0;
    Clock::time_point host;
  };
  template <class Read>
  static Reading fastest_of(const Read& read) {
    Reading fastest;
    Clock::duration shortest = Clock::duration::max();
    for (int round = 0; round < kRounds; ++round) {
      const auto before = Clock::now();
      const double device = read();
      const Clock::duration taken = Clock::now() - before;
      if (taken >= shortest) continue;
      shortest = taken;
      fastest = {device, before + taken / 2};
    }
    return fastest;
  }

  Reading first_, last_;
};

}  // namespace trireme

#endif  // TRIREME_BASE_DEVICE_CLOCK_HPP_

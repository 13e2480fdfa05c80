// report/rank_clock.hpp — clocks of ranks brought together, by messages to and fro of
// which the fastest counts (Cristian 1989): before and after what is to be compared, and
// in between a clock's offset is a line, so that one that goes faster is corrected, too.
#ifndef TRIREME_REPORT_RANK_CLOCK_HPP_
#define TRIREME_REPORT_RANK_CLOCK_HPP_

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::report {

// What a clock showed when rank 0's showed `reference`, in seconds.
struct ClockReading {
  double own = 0.0, reference = 0.0;
  double error = 0.0;  // at most, either way
};

// Rank 0's time, from readings before and after.
double reference_time(double own, const ClockReading& before, const ClockReading& after);

class RankClock {
 public:
  // Seconds of this rank's clock; the steady one unless a test has another.
  using Clock = std::function<double()>;

  // Collective: makes the pairs of ranks that compare their clocks, a binary tree of
  // them, so that all are compared in as many rounds as the tree has levels.
  explicit RankClock(comm::Communicator& world, Clock clock = {});

  // Reads this rank's clock against rank 0's. Collective.
  ClockReading read();

 private:
  struct Pair {
    std::shared_ptr<comm::Communicator> ranks;  // the one nearer to rank 0 first
    bool is_nearer = false;
  };
  ClockReading compare(comm::Communicator& pair, bool is_nearer) const;

  comm::Communicator& world_;
  Clock clock_;
  std::vector<Pair> pairs_;  // in the order in which they are compared
};

// Seconds of the steady clock.
double seconds_of(comm::Clock::time_point time);

}  // namespace trireme::report

#endif  // TRIREME_REPORT_RANK_CLOCK_HPP_

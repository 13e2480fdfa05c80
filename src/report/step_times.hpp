// report/step_times.hpp — how long steps took: count, sum, mean and median, in a memory
// of fixed size.
#ifndef TRIREME_REPORT_STEP_TIMES_HPP_
#define TRIREME_REPORT_STEP_TIMES_HPP_

#include <cstdint>
#include <vector>

namespace trireme::report {

// The median is of every step as long as there are not more than kMost; then of every
// second, every fourth and so on, so that it is of evenly spaced ones of all.
class StepTimes {
 public:
  static constexpr std::size_t kMost = 1024;

  StepTimes();
  void add(double seconds);
  void clear();

  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const;    // NaN where there is none
  double median() const;  // NaN where there is none

 private:
  std::vector<double> kept_;            // allocated once
  mutable std::vector<double> sorted_;  // so is the room to sort them
  std::int64_t count_ = 0;
  std::int64_t stride_ = 1;
  double sum_ = 0.0;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_STEP_TIMES_HPP_

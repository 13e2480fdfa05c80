// step/faster_way.hpp — which of two ways of doing the same work, turn after turn, is the
// faster now: all threads, or one.
//
// Several threads are slower than one where the work is small beside what a meeting of
// threads takes, and where other processes want the same cores: one thread that has to
// wait makes all of them wait. Neither is known beforehand, and the second changes. The
// two ways are therefore tried in turns, and the faster is kept until the next trial. A
// trial costs turns in the slower way; it is made only where the second way can be the
// faster at all, and the more seldom the more often it found nothing new.
#ifndef TRIREME_STEP_FASTER_WAY_HPP_
#define TRIREME_STEP_FASTER_WAY_HPP_

#include <array>

namespace trireme::step {

class FasterWay {
 public:
  // least_second: seconds that a turn takes the second way at least, as far as can be
  // said.
  explicit FasterWay(double least_second) : least_second_(least_second) {}

  // Whether the next turn goes the second way. It begins with the first.
  bool takes_second() const { return way_ == 1; }
  // The turn that takes_second() said took so long.
  void add(double seconds);

 private:
  struct Times {
    int turns = 0;
    double seconds = 0;
    double mean() const { return seconds / turns; }
  };
  bool is_due() const;
  void end_trial();

  double least_second_;
  int way_ = 0;
  int kept_ = 0;  // the way between trials
  bool is_trial_ = false;
  std::array<Times, 2> trial_;
  double smoothed_ = 0;  // seconds of a turn the kept way
  int turns_ = 0;        // since the last trial
  int interval_ = kFirstInterval;

  static constexpr int kFirstInterval = 8;
  static constexpr int kLongestInterval = 1024;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_FASTER_WAY_HPP_

// step/faster_way.hpp — which of two ways of doing the same work, turn after turn, is the
// faster now: all threads, or one.
//
// Several threads are slower than one where the work is small beside what a meeting of
// threads takes, and where other processes want the same cores: one thread that has to
// wait makes all of them wait. Neither is known beforehand, and the second changes. So
// the way that is not kept is tried now and then for some turns, and kept from then on if
// their mean is below that of the other's last turns. Means count the rare turn that is a
// hundred times as long, which is what a busy machine makes of several threads. A trial
// is made at once where the kept way has become slower than the other was, at longer and
// longer intervals else, and not at all where the second way cannot be the faster.
#ifndef TRIREME_STEP_FASTER_WAY_HPP_
#define TRIREME_STEP_FASTER_WAY_HPP_

namespace trireme::step {

class FasterWay {
 public:
  // least_second: seconds that a turn takes the second way at least, as far as can be
  // said.
  explicit FasterWay(double least_second) : least_second_(least_second) {}

  // Whether the next turn goes the second way. It begins with the first.
  bool takes_second() const { return (kept_ == 1) != is_trial_; }
  // The turn that takes_second() said took so long.
  void add(double seconds);

 private:
  bool is_due() const;
  void end_trial();

  double least_second_;
  int kept_ = 0;     // the way between trials
  double mean_ = 0;  // seconds of its last turns
  int turns_ = 0;    // since the last trial
  // Of the other way, in the last trial or when it was kept; 0: it was never taken.
  double other_ = 0;
  bool is_trial_ = false;
  int trial_turns_ = 0;
  double trial_seconds_ = 0;
  int interval_ = kLeastTurns;

  static constexpr int kLeastTurns = 8;
  static constexpr int kLongestInterval = 1024;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_FASTER_WAY_HPP_

// step/faster_way.hpp — which of two ways of doing the same work, turn after turn, is the
// faster now: all threads, or one.
//
// Several threads are slower than one where the work is small beside what a meeting of
// threads takes, and where other processes want the same cores: one thread that has to
// wait makes all of them wait. Neither is known beforehand, and the second changes. So
// the way that is not kept is tried now and then for some turns, and kept from then on if
// their mean is below that of the other's last turns. Means count the rare turn that is a
// hundred times as long, which is what a busy machine makes of several threads.
//
// A turn of one thread costs little more than one of all, a turn of all threads on a busy
// machine as much as a hundred. So one thread is tried early and often, and where its
// turns are short the first of all is one of them. All threads are tried late and seldom,
// the later the sooner they had to be left, and a trial ends with the turn that decides
// it; it is put off, though not for ever, while the system says that other processes want
// the cores. Whatever the intervals, a trial is made at once where the kept way has
// become slower than the other was, and none where one thread cannot be the faster.
#ifndef TRIREME_STEP_FASTER_WAY_HPP_
#define TRIREME_STEP_FASTER_WAY_HPP_

#include <functional>

namespace trireme::step {

class FasterWay {
 public:
  // least_second: seconds that a turn takes the second way at least, as far as can be
  // said. is_busy(): whether the first way would have to wait for others now; asked
  // before a trial of it, a few us.
  explicit FasterWay(double least_second, std::function<bool()> is_busy = {});

  // Whether the next turn goes the second way.
  bool takes_second() const { return (kept_ == 1) != is_trial_; }
  // The turn that takes_second() said took so long.
  void add(double seconds);

 private:
  bool is_due() const;
  bool is_put_off();
  int trial_length() const;
  void end_trial();

  double least_second_;
  std::function<bool()> is_busy_;
  int kept_;         // the way between trials: 0 the first, 1 the second
  double mean_ = 0;  // seconds of its last turns
  int turns_ = 0;    // since the last trial
  int tenure_ = 0;   // since the way is kept, trials of the other left out
  // Of the other way, in the last trial or when it was kept; 0: it was never taken.
  double other_ = 0;
  bool is_trial_ = false;
  int trial_turns_ = 0;
  double trial_seconds_ = 0;
  int next_look_ = 0;  // of turns_, at whether others want the cores
  // Turns from one trial to the next of [0] the first way, [1] the second.
  int interval_[2];
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_FASTER_WAY_HPP_

// step/faster_way.cpp — see faster_way.hpp.
#include "step/faster_way.hpp"

#include <algorithm>
#include <cstddef>

namespace trireme::step {

namespace {

// A trial has so many turns of each way, and so many seconds unless there are many turns.
constexpr int kTurns = 2, kMostTurns = 32;
constexpr double kSeconds = 1e-3;

}  // namespace

void FasterWay::add(double seconds) {
  if (is_trial_) {
    Times& times = trial_[static_cast<std::size_t>(way_)];
    ++times.turns;
    times.seconds += seconds;
    const auto is_enough = [](const Times& of) {
      return of.turns >= kTurns && (of.seconds >= kSeconds || of.turns >= kMostTurns);
    };
    if (is_enough(trial_[0]) && is_enough(trial_[1])) {
      end_trial();
    } else {
      way_ = 1 - way_;
    }
    return;
  }
  ++turns_;
  constexpr double kWeight = 0.25;
  smoothed_ = turns_ == 1 ? seconds : smoothed_ + kWeight * (seconds - smoothed_);
  if (is_due()) {
    is_trial_ = true;
    trial_ = {};
  }
}

// From the first way there is nothing to gain where the second takes longer in any case.
// A turn may be late by chance, which is why it has to seem longer.
bool FasterWay::is_due() const {
  if (turns_ < interval_) return false;
  return kept_ == 1 || least_second_ <= 1.25 * smoothed_;
}

void FasterWay::end_trial() {
  const int faster = trial_[1].mean() < trial_[0].mean() ? 1 : 0;
  interval_ = faster == kept_ ? std::min(2 * interval_, kLongestInterval)
                              : std::max(kFirstInterval, interval_ / 2);
  kept_ = way_ = faster;
  is_trial_ = false;
  turns_ = 0;
}

}  // namespace trireme::step

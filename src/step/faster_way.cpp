// step/faster_way.cpp — see faster_way.hpp.
#include "step/faster_way.hpp"

#include <algorithm>

namespace trireme::step {

namespace {

// A trial has so many turns, and so many seconds unless there are many turns.
constexpr int kTurns = 2, kMostTurns = 32;
constexpr double kSeconds = 1e-3;
// Turns that the mean of the kept way is taken over.
constexpr int kMemory = 32;

}  // namespace

void FasterWay::add(double seconds) {
  if (is_trial_) {
    ++trial_turns_;
    trial_seconds_ += seconds;
    const bool is_long = trial_seconds_ >= kSeconds || trial_turns_ >= kMostTurns;
    if (trial_turns_ >= kTurns && is_long) end_trial();
    return;
  }
  ++turns_;
  mean_ += (seconds - mean_) / std::min(turns_, kMemory);
  if (!is_due()) return;
  is_trial_ = true;
  trial_turns_ = 0;
  trial_seconds_ = 0;
}

bool FasterWay::is_due() const {
  if (turns_ < kLeastTurns) return false;
  if (kept_ == 0 && least_second_ > 1.25 * mean_) return false;
  const bool seems_slower = other_ > 0 && other_ < 0.8 * mean_;
  return seems_slower || turns_ >= interval_;
}

void FasterWay::end_trial() {
  if (turns_ >= interval_) interval_ = std::min(2 * interval_, kLongestInterval);
  const double tried = trial_seconds_ / trial_turns_;
  other_ = std::max(tried, mean_);
  if (tried < mean_) kept_ = 1 - kept_;
  mean_ = std::min(tried, mean_);
  is_trial_ = false;
  turns_ = 0;
}

}  // namespace trireme::step

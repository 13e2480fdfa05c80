// step/faster_way.cpp — see faster_way.hpp.
#include "step/faster_way.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::step {

namespace {

// A trial has so many turns, and so many seconds unless there are many turns.
constexpr int kTurns = 2, kMostTurns = 32;
constexpr double kSeconds = 1e-3;
// Turns that the mean of the kept way is taken over, and the fewest that say that it has
// become slower.
constexpr int kMemory = 32, kLeastTurns = 8;
// Turns to the first trial of the second way and, once the first was left, of the first;
// how much later each next one is; and the longest interval of both.
constexpr int kFirstInterval[2] = {64, 2}, kGrowth[2] = {4, 2}, kLongestInterval = 1024;
// Turns from one look at what else the machine does to the next.
constexpr int kLookInterval = 32;
// A first way that was kept for so long is left for a reason that is new.
constexpr int kLongTenure = 1024;

}  // namespace

FasterWay::FasterWay(double least_second, std::function<bool()> is_busy)
    : least_second_(least_second),
      is_busy_(std::move(is_busy)),
      kept_(least_second < kSeconds ? 1 : 0),
      interval_{kept_ == 1 ? 1 : kFirstInterval[0], kFirstInterval[1]} {}

void FasterWay::add(double seconds) {
  if (is_trial_) {
    ++trial_turns_;
    trial_seconds_ += seconds;
    const bool is_lost = trial_seconds_ >= trial_length() * mean_;
    if (is_lost || trial_turns_ >= trial_length()) end_trial();
    return;
  }
  ++turns_;
  ++tenure_;
  mean_ += (seconds - mean_) / std::min(turns_, kMemory);
  if (!is_due() || is_put_off()) return;
  is_trial_ = true;
  trial_turns_ = 0;
  trial_seconds_ = 0;
}

bool FasterWay::is_due() const {
  if (kept_ == 0 && least_second_ > 1.25 * mean_) return false;
  const bool seems_slower = turns_ >= kLeastTurns && other_ > 0 && other_ < 0.8 * mean_;
  return seems_slower || turns_ >= interval_[1 - kept_];
}

bool FasterWay::is_put_off() {
  if (kept_ == 0 || !is_busy_ || turns_ >= kLongestInterval) return false;
  if (turns_ < next_look_) return true;
  next_look_ = turns_ + kLookInterval;
  return is_busy_();
}

int FasterWay::trial_length() const {
  return static_cast<int>(
      std::clamp<double>(std::ceil(kSeconds / mean_), kTurns, kMostTurns));
}

void FasterWay::end_trial() {
  const int tried_way = 1 - kept_;
  const double tried = trial_seconds_ / trial_turns_;
  const bool is_kept = tried < mean_;
  const auto later = [](int way, int interval) {
    return std::clamp(kGrowth[way] * interval, kFirstInterval[way], kLongestInterval);
  };
  if (!is_kept) interval_[tried_way] = later(tried_way, interval_[tried_way]);
  if (is_kept && kept_ == 0) {
    interval_[0] = tenure_ < kLongTenure ? later(0, interval_[0]) : kFirstInterval[0];
  }
  if (is_kept) {
    kept_ = tried_way;
    tenure_ = 0;
  }
  other_ = std::max(tried, mean_);
  mean_ = std::min(tried, mean_);
  is_trial_ = false;
  turns_ = 0;
  next_look_ = 0;
}

}  // namespace trireme::step

// report/step_times.cpp — see step_times.hpp.
#include "report/step_times.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace trireme::report {

StepTimes::StepTimes() {
  kept_.reserve(kMost);
  sorted_.reserve(kMost);
}

void StepTimes::add(double seconds) {
  sum_ += seconds;
  if (count_++ % stride_ != 0) return;
  if (kept_.size() == kMost) {
    for (std::size_t i = 0; i < kMost / 2; ++i) kept_[i] = kept_[2 * i];
    kept_.resize(kMost / 2);
    stride_ *= 2;  // this one's number is a multiple of the new stride, too
  }
  kept_.push_back(seconds);
}

void StepTimes::clear() {
  kept_.clear();
  count_ = 0;
  stride_ = 1;
  sum_ = 0.0;
}

double StepTimes::mean() const {
  return count_ > 0 ? sum_ / static_cast<double>(count_)
                    : std::numeric_limits<double>::quiet_NaN();
}

double StepTimes::median() const {
  if (kept_.empty()) return std::numeric_limits<double>::quiet_NaN();
  sorted_.assign(kept_.begin(), kept_.end());
  const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(sorted_.size() / 2);
  std::nth_element(sorted_.begin(), middle, sorted_.end());
  if (sorted_.size() % 2 != 0) return *middle;
  return 0.5 * (*middle + *std::max_element(sorted_.begin(), middle));
}

}  // namespace trireme::report

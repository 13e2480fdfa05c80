// report/slow_steps.cpp — see slow_steps.hpp.
#include "report/slow_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.hpp"

namespace trireme::report {

namespace {

constexpr double kSlow = 1.5;          // times the median
constexpr double kLeastExcess = 0.05;  // seconds
constexpr std::size_t kFewestNeighbours = 4;
// A rank is the reason where it was so much of the excess longer at what it does itself.
constexpr double kShareOfReason = 0.5;

constexpr const char* what(TimePart part) {
  switch (part) {
    case TimePart::passes:
      return "kernels of passes";
    case TimePart::optimizer:
      return "kernels of the optimizer";
    case TimePart::input:
      return "waiting for its next batch";
    default:
      return "the host's code, in neither a kernel nor a message";
  }
}

}  // namespace

void SlowSteps::add(std::int64_t step, double seconds) {
  // Its libraries were made ready, and its memory was touched.
  if (std::exchange(is_first_, false)) return;
  if (last_.size() == kNeighbours) last_.erase(last_.begin());
  last_.push_back({step, seconds});
  fresh_ = std::min(fresh_ + 1, last_.size());
}

std::optional<SlowStep> SlowSteps::take() {
  const auto fresh = static_cast<std::ptrdiff_t>(std::exchange(fresh_, 0));
  if (last_.size() <= kFewestNeighbours || fresh == 0) return {};
  const auto slowest = std::max_element(
      last_.end() - fresh, last_.end(),
      [](const Step& a, const Step& b) { return a.seconds < b.seconds; });
  std::vector<double> seconds;
  for (const Step& step : last_) seconds.push_back(step.seconds);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  const double usual = *middle;
  if (slowest->seconds < kSlow * usual || slowest->seconds < usual + kLeastExcess) {
    return {};
  }
  return SlowStep{slowest->step, slowest->seconds, usual};
}

std::string describe(const SlowStep& slow, const std::vector<PartSeconds>& excess,
                     const std::vector<std::string>& axes) {
  std::string text =
      fmt::format("step {} took {}, {:.1f} times its neighbours: ", slow.step,
                  format_duration(slow.seconds), slow.seconds / slow.usual);
  TimePart part = TimePart::host;
  double most = 0.0;
  std::size_t rank = 0;
  for (std::size_t r = 0; r < excess.size(); ++r) {
    for (const TimePart of :
         {TimePart::passes, TimePart::optimizer, TimePart::input, TimePart::host}) {
      if (excess[r][of] <= most) continue;
      most = excess[r][of];
      part = of;
      rank = r;
    }
  }
  if (most >= kShareOfReason * (slow.seconds - slow.usual) || axes.empty()) {
    return text + fmt::format("rank {} was {} longer than usual in {}", rank,
                              format_duration(most), what(part));
  }
  // Nobody was busy: all waited for messages, of which the longest wait says most.
  std::size_t axis = 0;
  double wait = 0.0;
  for (std::size_t r = 0; r < excess.size(); ++r) {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (excess[r].axes()[a] <= wait) continue;
      wait = excess[r].axes()[a];
      axis = a;
      rank = r;
    }
  }
  return text +
         fmt::format(
             "no rank was busy for longer; rank {} waited {} longer than usual for "
             "messages along {}",
             rank, format_duration(wait), axes[axis]);
}

}  // namespace trireme::report

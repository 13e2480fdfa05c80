// comm/adaptive_wait.cpp — see adaptive_wait.hpp.
#include "comm/adaptive_wait.hpp"

#include <algorithm>

#include "base/core_time.hpp"
#include "base/wall_time.hpp"

namespace trireme::comm {

namespace {

// A wait reads the clocks when it has polled this often (some microseconds), and then
// again each time: most messages are there before, and cost no system call.
constexpr std::int64_t kFirstLook = 16;
constexpr std::int64_t kNextLook = 128;
// Polls before the first nap of a wait on a shared core, some half a millisecond: most
// messages come within that, and each nap that they are spared is worth several wake-ups.
// It is also less than a turn on the core, so that a partner which lost its core is not
// polled for. With 64 in its place, a small model on two tensor ranks beside two busy
// processes took 1.4 times as long (perf/README.md).
constexpr std::int64_t kPollsBeforeNap = 4000;
// How many naps there are from one look at the clock, whether polling is to be tried
// again, to the next.
constexpr std::int64_t kNapsBetweenLooks = 64;

// The core is shared where a millisecond and a tenth of the time is missing: an interrupt
// takes less, and another thread's turn takes more.
constexpr double kMissingSeconds = 1e-3;
constexpr double kMissingShare = 0.1;
// What was polled without that is forgotten after this long, so that an old turn of
// somebody else's does not add up with a new one.
constexpr double kWindowSeconds = 0.02;

// Polling is tried again after the shortest time at first, then less and less often: each
// try costs somebody's turn, some milliseconds, where the core is still shared.
constexpr double kShortestHold = 0.05;
constexpr double kLongestHold = 1.0;

}  // namespace

long nap_nanoseconds(std::int64_t naps_before) {
  constexpr std::int64_t kFirst = 20000, kLongest = 250000;
  constexpr std::int64_t kNapsToDouble = 16;
  const std::int64_t steps = std::min(naps_before / kNapsToDouble, kLongest / kFirst);
  return static_cast<long>(std::min(kFirst * (1 + steps), kLongest));
}

AdaptiveWait::Clocks AdaptiveWait::system_clocks() {
  return {.wall = steady_seconds, .on_core = thread_cpu_seconds};
}

AdaptiveWait::Next AdaptiveWait::next() {
  ++polls_;
  if (is_napping()) {
    if (polls_ < kPollsBeforeNap) return Next::poll;
    if (polls_ % kNapsBetweenLooks == 0 && clocks_.wall() >= naps_until_) {
      naps_until_ = 0.0;  // try
      polls_ = 0;
      return Next::poll;
    }
    return Next::nap;
  }
  if (polls_ == kFirstLook) {
    wall_ = clocks_.wall();
    on_core_ = clocks_.on_core();
  } else if (polls_ > kFirstLook && polls_ % kNextLook == 0) {
    look();
  }
  return is_napping() ? Next::nap : Next::poll;
}

void AdaptiveWait::end() {
  // The turn of another thread may have lasted until the message was there.
  if (wall_ > 0.0 && !is_napping()) look();
  wall_ = 0.0;
}

void AdaptiveWait::look() {
  const double wall = clocks_.wall();
  const double on_core = clocks_.on_core();
  polled_ += wall - wall_;
  missing_ += std::max(0.0, (wall - wall_) - (on_core - on_core_));
  wall_ = wall;
  on_core_ = on_core;
  if (missing_ >= kMissingSeconds && missing_ >= kMissingShare * polled_) {
    share(wall);
  } else if (polled_ >= kWindowSeconds) {
    polled_ = missing_ = 0.0;
    hold_ = 0.0;  // the core is ours: should that end, it is the first time again
  }
}

void AdaptiveWait::share(double now) {
  hold_ = hold_ == 0.0 ? kShortestHold : std::min(2.0 * hold_, kLongestHold);
  naps_until_ = now + hold_;
  polled_ = missing_ = 0.0;
  wall_ = 0.0;
}

}  // namespace trireme::comm

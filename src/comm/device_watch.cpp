// comm/device_watch.cpp — see device_watch.hpp.
//
// Only what the device is at counts against the limit: an operation that waits for
// kernels before it has not begun, and the host may be a step ahead. The watch sees that
// an operation has begun or ended at its next look, some hundredths of a second late.
#include "comm/device_watch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "comm/nccl_link.hpp"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kLongestPause{200}, kShortestPause{5};

std::chrono::milliseconds pause_of(double timeout) {
  if (timeout <= 0.0) return kLongestPause;
  const auto tenth =
      std::chrono::milliseconds(static_cast<std::int64_t>(100.0 * timeout));
  return std::clamp(tenth, kShortestPause, kLongestPause);
}

}  // namespace

DeviceWatch::DeviceWatch(Options options)
    : options_(std::move(options)),
      device_(device_of_thread()),
      thread_([this] { run(); }) {}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceWatch::add(Watched& transport) {
  const std::lock_guard<std::mutex> lock(mutex_);
  transports_.push_back(&transport);
}

void DeviceWatch::remove(Watched& transport) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(transports_, &transport);
}

void DeviceWatch::set_board(std::shared_ptr<OperationBoard> board) {
  const std::lock_guard<std::mutex> lock(mutex_);
  board_ = std::move(board);
}

bool DeviceWatch::is_under_way() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::ranges::any_of(
      transports_, [](Watched* transport) { return transport->is_under_way(); });
}

void DeviceWatch::require_whole() {
  if (!has_failed_) return;
  is_known_ = true;
  const std::lock_guard<std::mutex> lock(mutex_);
  throw Error(failure_);
}

void DeviceWatch::run() {
  try {
    enter_nccl_thread(device_);
    while (look()) {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, pause_of(timeout_), [&] { return is_ended_; });
      if (is_ended_) return;
    }
  } catch (const std::exception& error) {  // of the device: nothing can be asked any more
    WatchedLane unknown;
    unknown.error = error.what();
    fail(unknown, 0.0);
  }
}

// False where there is nothing left to look after.
bool DeviceWatch::look() {
  lanes_.clear();
  std::shared_ptr<OperationBoard> board;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Watched* transport : transports_) transport->look(lanes_);
    board = board_;
  }
  const auto now = Clock::now();
  still_running_.clear();
  for (WatchedLane& lane : lanes_) note(lane, now);
  std::swap(running_, still_running_);
  if (board != nullptr) {
    noted_.clear();
    for (const WatchedLane& lane : lanes_) noted_.push_back(lane.progress);
    board->note_device(noted_);
    board->give_sign(now);
  }
  const WatchedLane* oldest = nullptr;
  for (const WatchedLane& lane : lanes_) {
    if (!lane.error.empty()) {
      fail(lane, 0.0);
      return false;
    }
    if (!lane.progress.is_running) continue;
    if (oldest == nullptr || lane.progress.since < oldest->progress.since) oldest = &lane;
  }
  if (oldest == nullptr) return true;
  const std::chrono::duration<double> taken = now - oldest->progress.since;
  const double limit = timeout_;
  if (limit <= 0.0 || taken.count() < limit) return true;
  fail(*oldest, taken.count());
  return false;
}

// Since when the device has been at the lane's operation.
void DeviceWatch::note(WatchedLane& lane, Clock::time_point now) {
  OperationBoard::DeviceLane& progress = lane.progress;
  progress.since = now;
  if (!progress.is_running) return;
  const std::int64_t number = progress.ended + 1;
  for (const Running& known : running_) {
    if (known.key == progress.key && known.number == number) progress.since = known.since;
  }
  still_running_.push_back({progress.key, number, progress.since});
}

std::string DeviceWatch::problem_of(const WatchedLane& lane, double seconds) const {
  const OperationBoard::DeviceLane& progress = lane.progress;
  std::string text;
  if (progress.begun > progress.ended) {
    text = fmt::format("{}{} of group '{}'", progress.operation,
                       *progress.site == '\0' ? "" : fmt::format(" '{}'", progress.site),
                       progress.group);
    if (progress.peer >= 0) text += fmt::format(" with rank {}", progress.peer);
    text += fmt::format(" (number {} on its communicator, {})", progress.ended + 1,
                        format_plural(progress.elements, "element"));
  } else {
    text = fmt::format("the communicator of group '{}'", progress.group);
  }
  if (!lane.error.empty()) return text + ": " + lane.error;
  return fmt::format(
      "{} has been under way on the device for {:.1f} s; the limit is run.hang_timeout",
      text, seconds);
}

void DeviceWatch::fail(const WatchedLane& lane, double seconds) {
  std::shared_ptr<OperationBoard> board;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    board = board_;
  }
  std::string text = problem_of(lane, seconds);
  if (board != nullptr && lane.error.empty()) text += board->late_ranks(lane.progress);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failure_ = text;
  }
  std::fprintf(stderr, "trireme: rank %d: %s\n", options_.rank, text.c_str());
  std::fflush(stderr);
  if (board != nullptr) board->report_hang(seconds);
  has_failed_ = true;
  // The rank's own thread ends the run in order, where it comes to a message.
  const auto begin = Clock::now();
  const std::chrono::duration<double> grace(options_.grace_seconds);
  while (!is_known_ && Clock::now() - begin < grace) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, kShortestPause, [&] { return is_ended_; })) return;
  }
  // Else it waits for what hangs, and not within MPI, whose waits look here. It must not
  // go on with results that never came, so that nothing is freed for it while the job can
  // be ended.
  if (!is_known_ && options_.end) options_.end();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Watched* transport : transports_) transport->abort();
}

}  // namespace trireme::comm

// engine/stop_request.cpp — see stop_request.hpp.
#include "engine/stop_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

#include "base/error.hpp"
#include "engine/format.hpp"

namespace trireme::engine {

namespace {

// A handler has nowhere else to leave its message: the number of the last signal.
std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // else not safe in a handler
std::atomic<bool> is_listening{false};

extern "C" void trireme_note_signal(int number) {
  received_signal.store(number, std::memory_order_relaxed);
}

using config::SignalName;
constexpr std::array<std::pair<SignalName, int>, 5> kSignals = {
    {{SignalName::usr1, SIGUSR1},
     {SignalName::usr2, SIGUSR2},
     {SignalName::term, SIGTERM},
     {SignalName::intr, SIGINT},
     {SignalName::hup, SIGHUP}}};

int number_of(SignalName name) {
  for (const auto& [signal, number] : kSignals) {
    if (signal == name) return number;
  }
  throw Error(fmt::format("no number for signal {}", config::name_of(name)));
}

std::string_view name_of(int number) {
  for (const auto& [signal, known] : kSignals) {
    if (known == number) return config::name_of(signal);
  }
  throw Error(fmt::format("no name for signal {}", number));
}

// What one rank has to say, such that the maximum over ranks is the answer: signals
// before the time limit, and which rank it was.
constexpr std::int64_t kTimeLimit = 1;
constexpr std::int64_t kRanks = std::int64_t{1} << 32;
std::int64_t encode(std::int64_t code, int rank) {
  return code == 0 ? 0 : code * kRanks + rank;
}

}  // namespace

StopRequest::StopRequest(const Options& options) : options_(options) {
  std::vector<int> numbers = {SIGINT};
  for (const SignalName name : options.signals) {
    const int number = number_of(name);
    if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
      numbers.push_back(number);
    }
  }
  TRIREME_REQUIRE(!is_listening.exchange(true),
                  "two StopRequests at a time: signals go to one of them only");
  received_signal = 0;
  for (const int number : numbers) {
    struct sigaction action = {};
    action.sa_handler = trireme_note_signal;
    sigfillset(&action.sa_mask);
    // Reads, writes and MPI's calls go on where the signal hit them. ^C works once.
    action.sa_flags = SA_RESTART | (number == SIGINT ? SA_RESETHAND : 0);
    struct sigaction old = {};
    sigaction(number, &action, &old);
    old_handlers_.emplace_back(number, old);
  }
}

StopRequest::~StopRequest() {
  for (const auto& [number, old] : old_handlers_) sigaction(number, &old, nullptr);
  is_listening = false;
}

double StopRequest::elapsed() const {
  return std::chrono::duration<double>(Clock::now() - options_.start).count();
}

double StopRequest::margin() const {
  if (options_.margin_seconds) return *options_.margin_seconds;
  return std::max(2.0 * longest_checkpoint_, 0.01 * options_.time_limit_seconds);
}

void StopRequest::note_checkpoint(double seconds) {
  longest_checkpoint_ = std::max(longest_checkpoint_, seconds);
}

std::optional<double> StopRequest::seconds_to_limit() const {
  if (options_.time_limit_seconds <= 0.0) return std::nullopt;
  return std::max(0.0, options_.time_limit_seconds - margin() - elapsed());
}

bool StopRequest::limit_has_come() const {
  const auto left = seconds_to_limit();
  return left && *left <= longest_interval_;
}

StopReason StopRequest::poll(comm::Communicator& world) {
  if (reason_ != StopReason::none) return reason_;
  const double now = elapsed();
  if (last_poll_) longest_interval_ = std::max(longest_interval_, now - *last_poll_);
  last_poll_ = now;

  const int received = received_signal.load(std::memory_order_relaxed);
  const std::int64_t code =
      received != 0 ? kTimeLimit + received : (limit_has_come() ? kTimeLimit : 0);
  const std::int64_t worst = world.all_reduce(encode(code, world.rank()), comm::Op::max);
  if (worst == 0) return reason_;
  const std::int64_t worst_code = worst / kRanks;
  if (worst_code == kTimeLimit) {
    reason_ = StopReason::time_limit;
    const double left = std::max(0.0, options_.time_limit_seconds - now);
    description_ =
        fmt::format("wall-time limit of {} ({} left)",
                    format_duration(options_.time_limit_seconds), format_duration(left));
  } else {
    reason_ = StopReason::signal;
    description_ =
        fmt::format("signal {}", name_of(static_cast<int>(worst_code - kTimeLimit)));
    if (world.size() > 1) description_ += fmt::format(" (on rank {})", worst % kRanks);
  }
  return reason_;
}

}  // namespace trireme::engine

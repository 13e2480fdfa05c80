// job/stop_request.cpp — see stop_request.hpp.
//
// Two parts meet here: handlers, which may interrupt anything and so touch nothing but
// lock-free atomics and calls that are safe in a handler, and the object that the
// training loop asks. The atomics between them belong to the process, as signals do,
// which is why there may be one StopRequest at a time. Ranks agree by one all-reduce of
// a maximum: TERM (15) on rank 3 is the number (1 + 15) * 2^32 + 3, the limit on rank 5
// is 1 * 2^32 + 5, so that a signal comes before the limit, and the lower part
// says which rank it was.
#include "job/stop_request.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/signal_thread.hpp"
#include "base/wall_time.hpp"
#include "config/deck.hpp"

namespace trireme::job {

namespace {

constexpr int kStatusError = 1, kStatusRequeue = 75;
constexpr std::int64_t kSecond = 1000000000;  // ns
// What a save is given beyond the longest so far, as a loaded file system is slower.
constexpr double kSaveSafety = 1.5;
// Time for what comes after the last save: tables, the end of MPI and of the job's step,
// and what the job script does.
constexpr double kEndSeconds = 5.0;
constexpr double kFirstMargin = 300.0, kFirstMarginShare = 0.1;

using config::SignalName;
struct Signal {
  SignalName name;
  int number;
};
constexpr std::array<Signal, 5> kSignals = {{{SignalName::usr1, SIGUSR1},
                                             {SignalName::usr2, SIGUSR2},
                                             {SignalName::term, SIGTERM},
                                             {SignalName::intr, SIGINT},
                                             {SignalName::hup, SIGHUP}}};
static_assert(std::ranges::all_of(kSignals, [](const Signal& signal) {
  return std::ranges::find(kOutsideSignals, signal.number) != kOutsideSignals.end();
}));  // else they might hit a kernel

int number_of(SignalName name) {
  for (const Signal& signal : kSignals) {
    if (signal.name == name) return signal.number;
  }
  throw Error(fmt::format("no number for signal {}", config::name_of(name)));
}

std::string_view name_of(int number) {
  for (const Signal& signal : kSignals) {
    if (signal.number == number) return config::name_of(signal.name);
  }
  throw Error(fmt::format("no name for signal {}", number));
}

// All that a handler has to go by.
std::atomic<int> received_signal{0};          // the first
std::atomic<std::int64_t> interrupted_at{0};  // by the first ^C
std::atomic<int> status_at_once{kStatusError};
std::atomic<bool> speaks_at_once{true};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // else not safe there
std::atomic<bool> is_listening{false};
// A TERM that comes before anyone polls gives the start so long to come to it; then the
// timer sends another, which ends the process.
constexpr time_t kStartPatience = 10;  // s
std::atomic<bool> polls{false};
std::atomic<bool> has_timer{false};
timer_t start_timer{};

std::int64_t nanoseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

void make_start_timer() {
  if (has_timer) return;
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGTERM;
  has_timer = ::timer_create(CLOCK_MONOTONIC, &event, &start_timer) == 0;
}

// Sets the timer to so many seconds from now, or stops it (0). This may be called in a
// handler, as timer_settime() may.
void set_start_timer(time_t seconds) {
  itimerspec when = {};
  when.it_value.tv_sec = seconds;
  if (has_timer) ::timer_settime(start_timer, 0, &when, nullptr);
}

// This runs in a handler: nothing here may allocate, lock or flush.
void end_by_term() {
  const bool is_published = status_at_once == kStatusRequeue;
  const std::string_view text =
      is_published
          ? "trireme: ended by TERM: the run had not gone on, and did not within 10 s; "
            "status 75. Its checkpoints are as they were; --resume auto goes on\n"
          : "trireme: ended by TERM: the run had not begun, and did not within 10 s\n";
  static_assert(kStartPatience == 10);
  if (speaks_at_once) {
    [[maybe_unused]] const ssize_t written = ::write(2, text.data(), text.size());
  }
  if (is_published) ::_exit(kStatusRequeue);
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGTERM, &action, nullptr);
  ::kill(::getpid(), SIGTERM);  // comes when the handler returns
}

// This runs in a handler, too.
[[noreturn]] void stop_at_once(bool speaks) {
  const int status = status_at_once;
  const char* text =
      status == kStatusRequeue
          ? "trireme: a second ^C (INT): stopped at once, status 75. The checkpoint "
            "published last stands; --resume auto goes on from it\n"
          : "trireme: a second ^C (INT): stopped at once, status 1. No checkpoint of "
            "this run is published\n";
  if (speaks) {
    [[maybe_unused]] const ssize_t written = ::write(2, text, std::strlen(text));
  }
  ::_exit(status);
}

extern "C" void trireme_note_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  if (number == SIGTERM && !polls) {
    if (info->si_code == SI_TIMER) {
      end_by_term();
    } else if (received_signal != SIGTERM) {
      set_start_timer(kStartPatience);
    }
  }
  if (info->si_code == SI_TIMER) return;
  int none = 0;
  received_signal.compare_exchange_strong(none, number);
  const std::int64_t now = nanoseconds_now();
  std::int64_t first = 0;
  if (number == SIGINT && !interrupted_at.compare_exchange_strong(first, now) &&
      now - first >= kSecond) {
    // One rank speaks for all that a launcher, their parent, or the terminal signals
    // together.
    stop_at_once(speaks_at_once || (info->si_pid != 0 && info->si_pid != ::getppid()));
  }
  errno = error;
}

// What one rank has to say, such that the maximum over ranks is the answer: signals
// before the time limit, and which rank it was.
constexpr std::int64_t kTimeLimit = 1;
constexpr std::int64_t kRanks = std::int64_t{1} << 32;
std::int64_t encode(std::int64_t code, int rank) {
  return code == 0 ? 0 : code * kRanks + rank;
}

}  // namespace

StopRequest::Handlers StopRequest::early_handlers_;

void StopRequest::listen_early() {
  received_signal = 0;
  make_start_timer();
  for (const SignalName name : config::CheckpointConfig().on_signal) {
    listen_to(number_of(name), early_handlers_);
  }
}

void StopRequest::listen_to(int number, Handlers& old) {
  struct sigaction action = {};
  action.sa_sigaction = trireme_note_signal;
  sigfillset(&action.sa_mask);
  // Reads, writes and MPI's calls go on where the signal hit them.
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  struct sigaction before = {};
  sigaction(number, &action, &before);
  old.emplace_back(number, before);
}

StopRequest::StopRequest(const Options& options) {
  TRIREME_REQUIRE(!is_listening.exchange(true),
                  "two StopRequests at a time: signals go to one of them only");
  if (early_handlers_.empty()) received_signal = 0;
  interrupted_at = 0;
  status_at_once = kStatusError;
  make_start_timer();
  old_handlers_ = std::move(early_handlers_);
  early_handlers_.clear();
  change(options);
}

StopRequest::~StopRequest() {
  for (const auto& [number, old] : old_handlers_) {
    struct sigaction then = old;
    // A warning that comes while ranks take leave of each other: all is saved, and the
    // default would end them with a status of its own.
    const bool is_warning = number == SIGUSR1 || number == SIGUSR2;
    if (is_warning && then.sa_handler == SIG_DFL) then.sa_handler = SIG_IGN;
    sigaction(number, &then, nullptr);
  }
  set_start_timer(0);
  polls = false;
  is_listening = false;
}

void StopRequest::change(const Options& options) {
  options_ = options;
  speaks_at_once = options.speaks;
  if (!polls && received_signal == SIGTERM) set_start_timer(kStartPatience);  // anew
  listen(options.signals);
}

void StopRequest::listen(const std::vector<SignalName>& signals) {
  std::vector<int> numbers = {SIGINT};
  for (const SignalName name : signals) numbers.push_back(number_of(name));
  const auto listened = [&](int number) {
    return std::ranges::find(old_handlers_, number, &Handlers::value_type::first);
  };
  for (const int number : numbers) {
    if (listened(number) == old_handlers_.end()) listen_to(number, old_handlers_);
  }
  for (const Signal& signal : kSignals) {
    const auto entry = listened(signal.number);
    const bool is_wanted = std::ranges::count(numbers, signal.number) > 0;
    if (entry == old_handlers_.end() || is_wanted) continue;
    sigaction(signal.number, &entry->second, nullptr);
    old_handlers_.erase(entry);
    int number = signal.number;
    if (!received_signal.compare_exchange_strong(number, 0)) continue;
    ::kill(::getpid(), signal.number);  // not this thread: it may block them
  }
}

double StopRequest::first_margin(double seconds) {
  return std::min(kFirstMargin, kFirstMarginShare * seconds);
}

double StopRequest::elapsed() const {
  return seconds_since(options_.start);
}

std::optional<double> StopRequest::seconds_to_end() const {
  std::optional<double> left;
  if (options_.time_limit_seconds > 0.0) left = options_.time_limit_seconds - elapsed();
  if (options_.job == nullptr) return left;
  const auto of_job = options_.job->seconds_left();
  return left && of_job ? std::min(*left, *of_job) : (left ? left : of_job);
}

double StopRequest::margin() const {
  if (options_.margin_seconds) return *options_.margin_seconds;
  const double first = first_margin(elapsed() + seconds_to_end().value_or(0.0));
  // The start that saves were measured in may have had other ranks, files or disks.
  if (longest_save_ <= 0.0) return std::max(first, kSaveSafety * expected_save_);
  return std::max(kSaveSafety * longest_save_, std::min(first, kEndSeconds));
}

void StopRequest::note_checkpoint(double seconds) {
  longest_save_ = std::max(longest_save_, seconds);
  begin_interval();
  note_published();
}

void StopRequest::note_published() {
  status_at_once = kStatusRequeue;
}

bool StopRequest::is_published() const {
  return status_at_once == kStatusRequeue;
}

std::optional<double> StopRequest::seconds_to_limit() const {
  const auto left = seconds_to_end();
  if (!left) return std::nullopt;
  return std::max(0.0, *left - margin());
}

bool StopRequest::limit_has_come() const {
  const auto left = seconds_to_limit();
  const double until_saved = is_saving_ ? longest_save_ : 0.0;
  const double steps = longest_interval_ * (1 + steps_under_way_);
  return left && *left <= steps + until_saved;
}

std::string StopRequest::take_note() {
  return options_.job == nullptr ? std::string() : options_.job->take_note();
}

std::string StopRequest::take_warning() {
  return options_.job == nullptr ? std::string() : options_.job->take_warning();
}

std::string StopRequest::describe_limit() const {
  const double limit = options_.time_limit_seconds;
  const auto of_job =
      options_.job == nullptr ? std::nullopt : options_.job->seconds_left();
  const bool is_own = !of_job || (limit > 0.0 && limit - elapsed() < *of_job);
  return fmt::format("{} ({} left)",
                     is_own ? fmt::format("wall-time limit of {}", format_duration(limit))
                            : std::string("the job's end is near"),
                     format_duration(std::max(0.0, seconds_to_end().value_or(0.0))));
}

StopReason StopRequest::poll(comm::Communicator& world) {
  if (reason_ != StopReason::none) return reason_;
  if (options_.job != nullptr) options_.job->poll();
  const double now = elapsed();
  if (last_poll_) longest_interval_ = std::max(longest_interval_, now - *last_poll_);
  last_poll_ = now;
  end_of_start();
  return agree(world, limit_has_come());
}

StopReason StopRequest::poll_signals(comm::Communicator& world) {
  if (reason_ != StopReason::none) return reason_;
  if (options_.job != nullptr) options_.job->poll();  // the answer takes a while
  end_of_start();
  return agree(world, false);
}

StopReason StopRequest::poll_start(comm::Communicator& world) {
  if (reason_ != StopReason::none) return reason_;
  if (options_.job != nullptr) options_.job->poll();
  const StopReason reason = agree(world, false);
  if (reason != StopReason::none) end_of_start();
  return reason;
}

void StopRequest::end_of_start() {
  polls = true;
  set_start_timer(0);
}

StopReason StopRequest::agree(comm::Communicator& world, bool limit_has_come) {
  const int received = received_signal;
  const std::int64_t code =
      received != 0 ? kTimeLimit + received : (limit_has_come ? kTimeLimit : 0);
  const std::int64_t worst = world.all_reduce(encode(code, world.rank()), comm::Op::max);
  if (worst == 0) return reason_;
  const std::int64_t worst_code = worst / kRanks;
  if (worst_code == kTimeLimit) {
    reason_ = StopReason::time_limit;
    description_ = describe_limit();
  } else {
    reason_ = StopReason::signal;
    description_ =
        fmt::format("signal {}", name_of(static_cast<int>(worst_code - kTimeLimit)));
    if (world.size() > 1) description_ += fmt::format(" (on rank {})", worst % kRanks);
  }
  return reason_;
}

}  // namespace trireme::job

// engine/stop_request.hpp — whether to stop early: a signal (checkpoint.on_signal, or ^C)
// or the wall-time limit (run.time_limit).
//
// Handlers only set a flag; the training loop asks once per step, all ranks together, so
// that a signal on any rank stops all of them after the same step. ^C asks politely once;
// the second time it does what it always does. The old handlers are put back at the end.
#ifndef TRIREME_ENGINE_STOP_REQUEST_HPP_
#define TRIREME_ENGINE_STOP_REQUEST_HPP_

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "config/enums.hpp"

namespace trireme::engine {

enum class StopReason { none, signal, time_limit };

class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::vector<config::SignalName> signals;  // ^C is always among them
    double time_limit_seconds = 0.0;          // 0: none
    // Before the limit; none: found automatically.
    std::optional<double> margin_seconds = std::nullopt;
    Clock::time_point start = Clock::now();  // when the allocation's time began to run
  };

  // One at a time in a program: throws Error for a second.
  explicit StopRequest(const Options& options);
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Collective: after each step, the same answer on every rank; once given it stays. The
  // limit has come when another interval like the longest between two calls (a step, a
  // validation and a checkpoint, say) and the margin would not fit into what is left.
  StopReason poll(comm::Communicator& world);
  // For the automatic margin, twice the longest that a checkpoint took so far (and at
  // least a hundredth of the limit): a loaded file system is slower at the end.
  void note_checkpoint(double seconds);

  // "signal USR1 (on rank 3)", "wall-time limit of 2h00m (1m12s left)"; empty before.
  const std::string& description() const { return description_; }
  // Until training stops for the limit; none without a limit.
  std::optional<double> seconds_to_limit() const;

 private:
  double margin() const;
  double elapsed() const;
  bool limit_has_come() const;

  Options options_;
  std::vector<std::pair<int, struct sigaction>> old_handlers_;
  double longest_interval_ = 0.0;
  double longest_checkpoint_ = 0.0;
  std::optional<double> last_poll_;
  StopReason reason_ = StopReason::none;
  std::string description_;
};

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_STOP_REQUEST_HPP_

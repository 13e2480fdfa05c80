// job/stop_request.hpp — whether to stop early: a signal (checkpoint.on_signal, or ^C)
// or the end of the time there is (run.time_limit, and the job's own: job_clock.hpp).
//
// The first signal is a request: its handler sets a flag, and the training loop asks at
// every step, all ranks together, so that a signal on any rank stops all of them after
// the same step. Requests do not add up, whatever their names and however often they
// come: a save under way may still be finished. SLURM warns (USR1), sends TERM at the
// limit or at the beginning of a grace time, and TERM again at its end; job scripts and
// launchers pass on what comes to them, seconds later. Who must not wait any longer sends
// KILL.
//
// Until the loop asks for the first time, a start that got TERM has ten seconds to come
// to that (anew when the deck is read), however much it has to read: then it ends by it,
// as other programs do, or with status 75 where the run directory has a checkpoint to go
// on from. Nothing is written until then, and no rank waits for another to end so.
//
// Only a person's second ^C (INT), a second or more after the first, ends the process in
// the handler: also a rank that hangs. (Launchers and terminals send one ^C both, within
// milliseconds.)
//
// Handlers run where the signal comes to: base/signal_thread.hpp says why that should be
// a thread of its own.
#ifndef TRIREME_JOB_STOP_REQUEST_HPP_
#define TRIREME_JOB_STOP_REQUEST_HPP_

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "config/enums.hpp"
#include "job/job_clock.hpp"

namespace trireme::job {

enum class StopReason { none, signal, time_limit };

class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::vector<config::SignalName> signals;  // ^C is always among them
    double time_limit_seconds = 0.0;          // 0: none
    // Seconds before the limit at which to stop; none: found automatically.
    std::optional<double> margin_seconds = std::nullopt;
    Clock::time_point start = Clock::now();  // when the time limit began to run
    JobClock* job = nullptr;                 // its end is a limit, too
    bool speaks = true;                      // says so when a second ^C ends it
  };

  // At the beginning of a program that will have a StopRequest, before MPI starts, which
  // takes long on many nodes: what batch systems send is kept for it, where it would end
  // the process.
  static void listen_early();

  // One at a time in a program: throws Error for a second.
  explicit StopRequest(const Options& options);
  // Puts the old handlers back; where there was none, USR1 and USR2 are ignored from now
  // on: nothing is left to stop.
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Other options, once the deck is read. What has come so far counts; a signal that is
  // no longer listened to is raised anew, for its old handler.
  void change(const Options& options);

  // Collective: after each step and between the batches of a validation; the same answer
  // on every rank; once given it stays. The limit has come when another interval like the
  // longest between two calls (one more for each step that is under way) and the margin
  // would not fit into what is left.
  StopReason poll(comm::Communicator& world);
  // Asks as poll() does, of signals alone: before the first step, so that every start
  // makes one whatever the limit.
  StopReason poll_signals(comm::Communicator& world);
  // Asks as poll_signals() does, before what may take long, or hang, on the way to the
  // first step: where there is no signal yet, a TERM that comes meanwhile ends the start
  // after ten seconds.
  StopReason poll_start(comm::Communicator& world);
  // What took the time since the last poll (the start, a save) does not come again before
  // the next: no interval.
  void begin_interval() { last_poll_ = elapsed(); }
  // A save took so long, from its beginning to its publication.
  void note_checkpoint(double seconds);
  // A save of an earlier start took so long: this one's first may, too.
  void expect_save(double seconds) { expected_save_ = seconds; }
  // A save is being written beside the steps: the last one has to wait for it.
  void set_saving(bool is_saving) { is_saving_ = is_saving; }
  // So many steps are launched that nobody has waited for: they come before the end.
  void set_steps_under_way(int steps) { steps_under_way_ = steps; }
  // The run directory has a checkpoint to go on from: a second ^C is status 75.
  void note_published();
  bool is_published() const;

  // "signal USR1 (on rank 3)", "wall-time limit of 2h00m (1m12s left)"; empty before.
  const std::string& description() const { return description_; }
  // Until training stops for the limit; none without a limit.
  std::optional<double> seconds_to_limit() const;
  // What the job's clock has to say, once; empty: nothing.
  std::string take_note();
  std::string take_warning();

  // The automatic margin of a run that has this long, until a save was measured: a tenth
  // of it, at most five minutes.
  static double first_margin(double seconds);

 private:
  using Handlers = std::vector<std::pair<int, struct sigaction>>;
  static void listen_to(int number, Handlers& old);
  void listen(const std::vector<config::SignalName>& signals);
  double margin() const;
  double elapsed() const;
  std::optional<double> seconds_to_end() const;
  bool limit_has_come() const;
  std::string describe_limit() const;
  static void end_of_start();
  StopReason agree(comm::Communicator& world, bool limit_has_come);

  Options options_;
  Handlers old_handlers_;
  static Handlers early_handlers_;
  double longest_interval_ = 0.0;
  double longest_save_ = 0.0;
  double expected_save_ = 0.0;
  bool is_saving_ = false;
  int steps_under_way_ = 0;
  std::optional<double> last_poll_;
  StopReason reason_ = StopReason::none;
  std::string description_;
};

}  // namespace trireme::job

#endif  // TRIREME_JOB_STOP_REQUEST_HPP_

// report/progress.hpp — what the terminal shows while training: a progress bar that is
// redrawn on a terminal, one line per log_every steps elsewhere (a job's output file).
//
//   1240/5000 ━━━━╸────────── 25%  loss 4.812  12.3k tok/s  61% peak  3m20s left
// Speeds are those of steps alone. Where validations and the like took more than a
// hundredth of the time since the last line, "4.1% other work" says so.
// Fields that do not fit the width are left out, the least important first. Messages are
// printed above the bar. Rank 0 only.
#ifndef TRIREME_REPORT_PROGRESS_HPP_
#define TRIREME_REPORT_PROGRESS_HPP_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "model/losses.hpp"

namespace trireme::report {

// What the stream can do.
struct Terminal {
  bool redraws = false;  // a terminal that understands carriage return and erasing
  bool unicode = false;
  bool colour = false;
  int columns = 80;
};
// environment: std::getenv or a test's. NO_COLOR and TERM=dumb are respected; Unicode is
// taken from the locale's variables. TRIREME_PROGRESS=bar|lines decides where it is set:
// a launcher takes stdout through a pipe, whose end may still be a terminal (of COLUMNS).
// InputError for another value.
Terminal find_terminal(std::FILE* stream,
                       const std::function<const char*(const char*)>& environment);

// Seconds left, from the wall time between steps with all that happens between them
// (validations, checkpoints): the mean so far; beyond 200 steps old ones fade.
class StepClock {
 public:
  // The first call starts the clock: a first step says nothing of the others.
  void tick(double now);
  // The time of a step; not finite before two ticks.
  double seconds_per_step() const;

 private:
  std::int64_t ticks_ = 0;
  double last_ = 0.0;
  double mean_ = 0.0;
};

// The state after a step.
struct ProgressState {
  std::int64_t step = 0;
  double loss = 0.0;
  model::NamedLosses losses = {};    // of objectives, where there are several
  double tokens_per_second = 0.0;    // of steps alone, as peak_share
  double peak_share = 0.0;           // of the measured GEMM peak; not finite: unknown
  double other_share = 0.0;          // of the time, that went into no step
  std::int64_t next_checkpoint = 0;  // its step; 0: none to come
  std::optional<double> time_limit;  // seconds until the wall-time limit stops the run
};

class Progress {
 public:
  struct Options {
    std::int64_t steps = 0;  // of the whole run
    std::int64_t log_every = 10;
    Terminal terminal;
    std::function<double()> clock = {};  // seconds; the steady clock where empty
    // Is given the lines of log_every and all messages, bar or not; may be empty.
    std::function<void(const std::string& text)> record = {};
  };

  Progress(std::FILE* stream, const Options& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // To be called after each step. A bar is redrawn at most ten times a second.
  void update(const ProgressState& state);
  // One or more lines, without the last newline.
  void message(std::string_view text);
  // What goes on between steps ("validating", "writing a checkpoint"), shown in the bar
  // until the next update; nothing elsewhere.
  void note(std::string_view activity);
  // The bar in its last state stays, and what is printed next begins a new line.
  void finish();

 private:
  std::string bar_line() const;
  std::string plain_line(int columns) const;
  std::string bar(int width) const;
  void draw();
  void write(std::string_view text);

  std::FILE* stream_;
  Options options_;
  StepClock step_clock_;
  ProgressState state_;
  std::string activity_;
  bool has_state_ = false;
  bool is_drawn_ = false;
  double drawn_at_ = 0.0;
};

}  // namespace trireme::report

#endif  // TRIREME_REPORT_PROGRESS_HPP_

// job/job_clock.hpp — when the batch system will end this job.
//
//   SLURM_JOB_END_TIME      seconds since 1970, where SLURM sets it; one that has passed
//                           when the run begins (of a shell that was kept from another
//                           job, say) is believed by squeue's word only
//   squeue -h -o %L -j JOB  else: by one rank, at most once a minute, as limits can be
//                           changed while a job runs
// The question is put by a process beside this one and its answer picked up later:
// poll() takes microseconds whatever SLURM's controller is busy with.
#ifndef TRIREME_JOB_JOB_CLOCK_HPP_
#define TRIREME_JOB_JOB_CLOCK_HPP_

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/child_process.hpp"

namespace trireme::job {

// Seconds of what squeue prints for %L: "1-02:03:04", "59:30", "UNLIMITED" (infinite),
// "INVALID" (0: the job is past its limit). None for "NOT_SET" and all else.
std::optional<double> parse_time_left(std::string_view text);

// The job's name in SLURM, as its variables have it (std::getenv's, or a test's): empty
// without one, or where they hold what no name of a job is.
std::string slurm_job(const std::function<const char*(const char*)>& variable);

class JobClock {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    // An environment variable, or null.
    std::function<const char*(const char*)> variable = std::getenv;
    bool asks = true;  // one rank of the job does
    std::string squeue = "squeue";
    double interval = 60.0;  // seconds between questions
    double patience = 20.0;  // after which one is given up
  };
  explicit JobClock(const Options& options);

  // Picks up an answer, puts the next question when it is time to. Never waits.
  void poll();
  // Seconds that the job has left; none where it has no limit, or none is known.
  std::optional<double> seconds_left() const;
  // What the user should know, once: the end as it was found, that it has moved, or that
  // nobody answers. Empty: nothing new.
  std::string take_note();
  // A warning, once, of variables that are not believed, on the rank that asks.
  std::string take_warning();

 private:
  void take_answer(const ChildProcess::Ended& ended);
  void give_up(const std::string& reason);

  Options options_;
  std::string job_;  // to ask for; empty: no question
  std::optional<Clock::time_point> end_;
  bool is_known_ = false;
  bool has_failed_ = false;
  // The process that asks. It is kept until it is gone, also where it was killed: no
  // other one is put beside it, and no zombie of it is left.
  std::unique_ptr<ChildProcess> question_;
  bool is_killed_ = false;
  std::optional<Clock::time_point> asked_;
  std::string note_, warning_;
};

}  // namespace trireme::job

#endif  // TRIREME_JOB_JOB_CLOCK_HPP_

// job/job_clock.cpp — see job_clock.hpp.
//
// SLURM tells the end of a job in a variable, and squeue knows when that is changed.
// squeue may hang with its server, so it is asked by a child process that is only looked
// at between steps, and killed where it takes too long: training never waits for an
// answer.
#include "job/job_clock.hpp"

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/wall_time.hpp"
#include "base/words.hpp"
#include "job/slurm_time.hpp"

namespace trireme::job {

namespace {

constexpr double kMoved = 60.0;  // seconds by which a changed limit is worth a word
constexpr double kFarOff = 1e8;  // seconds, beyond which an end is none of this age

JobClock::Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<JobClock::Clock::duration>(
      std::chrono::duration<double>(seconds));
}

std::optional<double> seconds_since_1970(const std::string& text) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(seconds) ? std::optional(seconds) : std::nullopt;
}

// "4711", "4711_3", "4711+0"; squeue would take more for a list, or for an option.
bool is_job(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0 &&
         text.find_first_not_of("0123456789_+") == std::string_view::npos;
}

// A text of the environment as a message can show it.
std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

std::optional<double> parse_time_left(std::string_view text) {
  if (text == "UNLIMITED") return std::numeric_limits<double>::infinity();
  if (text == "INVALID") return 0.0;
  return parse_slurm_time(text);
}

std::string slurm_job(const std::function<const char*(const char*)>& variable) {
  const char* job = variable("SLURM_JOB_ID");
  return job != nullptr && is_job(job) ? job : "";
}

JobClock::JobClock(const Options& options) : options_(options) {
  const auto variable = [&](const char* name) {
    const char* value = options_.variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string end = variable("SLURM_JOB_END_TIME");
  std::string doubt;  // about the variable
  if (!end.empty()) {
    const std::optional<double> time = seconds_since_1970(end);
    const double left = time ? *time - wall_seconds() : 0.0;
    if (left > 0.0 && left < kFarOff) {
      end_ = Clock::now() + duration_of(left);
      return;
    }
    doubt = fmt::format("SLURM_JOB_END_TIME is '{}', {}", printable(end),
                        !time || std::abs(left) >= kFarOff
                            ? std::string("which is no end of this job")
                            : fmt::format("which was {} ago: it is of a job before, or "
                                          "the clock is wrong",
                                          format_duration(-left)));
  }
  if (!options_.asks) return;
  const std::string id = variable("SLURM_JOB_ID");
  // A job of an array by its place there: by its number squeue would tell of all of them.
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  const std::string job =
      array.empty() ? id : array + "_" + variable("SLURM_ARRAY_TASK_ID");
  if (is_job(job)) job_ = job;
  if (!doubt.empty()) {
    warning_ = doubt + (job_.empty() ? ". It is ignored" : ". squeue's word counts");
  } else if (job_.empty() && !job.empty()) {
    warning_ = fmt::format(
        "SLURM_JOB_ID (or SLURM_ARRAY_JOB_ID with SLURM_ARRAY_TASK_ID) is '{}', which is "
        "no name of a job: squeue is not asked when it ends",
        printable(job));
  }
}

void JobClock::poll() {
  if (job_.empty()) return;
  const Clock::time_point now = Clock::now();
  if (question_ != nullptr) {
    if (const auto ended = question_->poll()) {
      question_.reset();
      if (!is_killed_) take_answer(*ended);
    } else if (!is_killed_ && now - *asked_ > duration_of(options_.patience)) {
      question_->kill();
      is_killed_ = true;
      give_up(fmt::format("no answer within {}", format_duration(options_.patience)));
    }
  } else if (!asked_ || now - *asked_ > duration_of(options_.interval)) {
    asked_ = now;
    is_killed_ = false;
    try {
      question_ = std::make_unique<ChildProcess>(
          std::vector<std::string>{options_.squeue, "-h", "-o", "%L", "-j", job_});
    } catch (const Error& error) {
      give_up(error.what());
    }
  }
}

void JobClock::take_answer(const ChildProcess::Ended& ended) {
  const std::vector<std::string_view> lines = lines_of(ended.output);
  std::optional<double> left;
  for (auto line = lines.begin(); !left && line != lines.end(); ++line) {
    left = parse_time_left(trimmed(*line));
  }
  if (!left) {
    return give_up(fmt::format("status {}, '{}'", ended.status,
                               lines.empty() ? "" : trimmed(lines.front())));
  }
  const auto before = seconds_left();
  end_.reset();
  if (std::isfinite(*left)) end_ = *asked_ + duration_of(*left);
  const auto after = seconds_left();
  if (!is_known_ && after) {
    note_ = fmt::format("SLURM ends job {} in {}", job_, format_duration(*after));
  } else if (is_known_ && (before.has_value() != after.has_value() ||
                           (after && std::abs(*after - *before) > kMoved))) {
    note_ = after ? fmt::format("SLURM's limit for job {} has changed: {} left", job_,
                                format_duration(*after))
                  : fmt::format("SLURM's limit for job {} is gone", job_);
  }
  is_known_ = true;
  has_failed_ = false;
}

void JobClock::give_up(const std::string& reason) {
  if (!has_failed_ && !is_known_) {
    note_ = fmt::format(
        "squeue does not tell when job {} ends ({}): run.time_limit and signals alone "
        "stop the run in time",
        job_, reason);
  }
  has_failed_ = true;
}

std::optional<double> JobClock::seconds_left() const {
  if (!end_) return std::nullopt;
  return -seconds_since(*end_);
}

std::string JobClock::take_note() {
  return std::exchange(note_, std::string());
}

std::string JobClock::take_warning() {
  return std::exchange(warning_, std::string());
}

}  // namespace trireme::job

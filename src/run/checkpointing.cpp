// run/checkpointing.cpp — see checkpointing.hpp.
#include "run/checkpointing.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/communicator.hpp"

namespace trireme::run {

namespace {

// The last checkpoint of a run is worth some patience: what filled the disk may be gone.
constexpr int kLastTries = 3;

std::string text_of(const ckpt::SaveReport& report, double stopped_seconds) {
  return fmt::format(
      "checkpoint of step {}: {} in {:.2f} s ({}/s), training waited {:.3f} s",
      report.step, format_bytes(static_cast<double>(report.bytes)), report.busy_seconds,
      format_bytes(static_cast<double>(report.bytes) / report.busy_seconds),
      stopped_seconds);
}

}  // namespace

Checkpointing::Checkpointing(const config::Deck& deck, comm::Communicator& world,
                             const std::string& host, const Exec& exec,
                             const std::vector<ckpt::TensorPart>& parts,
                             const Options& options)
    : deck_(deck.checkpoint),
      world_(world),
      options_(options),
      hang_timeout_(deck.run.hang_timeout.value_or(0.0)),
      saver_(world, host,
             {.directory = deck_.dir,
              .writers = deck_.writers,
              .in_background = deck_.async,
              .before_publish = options.before_publish,
              .hook = options.hook}) {
  saver_.reserve(exec, parts);
}

void Checkpointing::start(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
                          const ckpt::TrainingState& state, double step_seconds) {
  const auto now = Clock::now();
  wait();
  stopped_since_ = now;
  stopped_seconds_.reset();
  options_.prepare();
  ckpt::Retention retention{.keep = static_cast<int>(deck_.keep),
                            .keep_every = deck_.keep_every.steps};
  if (deck_.keep_best && state.best_step >= 0) retention.keep_best = state.best_step;
  step_under_way_ = state.step;
  step_seconds_ = step_seconds;
  saver_.begin(exec, parts, state, retention);
}

void Checkpointing::begin(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
                          const ckpt::TrainingState& state, double step_seconds) {
  if (state.step == saved_step_ || state.step == step_under_way_) return;
  start(exec, parts, state, step_seconds);
  if (!deck_.async) wait();
  stopped_seconds_ = seconds_stopped();
}

double Checkpointing::seconds_stopped() const {
  return stopped_seconds_.value_or(
      std::chrono::duration<double>(Clock::now() - stopped_since_).count());
}

void Checkpointing::wait() {
  if (saver_.is_under_way()) settle(saver_.finish(hang_timeout_));
}

void Checkpointing::advance() {
  const auto report = saver_.advance();
  if (report) settle(*report);
}

void Checkpointing::settle(const ckpt::SaveReport& report) {
  step_under_way_ = -1;
  options_.ended(report.step, report.error.empty(), report.own_seconds);
  const bool speaks = world_.rank() == 0;
  if (report.error.empty()) {
    saved_step_ = report.step;
    ++published_;
    misses_ = 0;
    longest_seconds_ = std::max(longest_seconds_, report.busy_seconds);
    if (speaks) options_.say(text_of(report, seconds_stopped()));
    if (speaks) options_.saved(report.step, step_seconds_, report.busy_seconds);
    if (speaks && !report.warning.empty()) options_.warn(report.warning);
    return;
  }
  ++misses_;
  last_error_ = report.error;
  const std::string what = fmt::format(
      "the checkpoint of step {} could not be written:\n{}\n", report.step, report.error);
  const std::string newest =
      saved_step_ >= 0
          ? fmt::format("The newest that is published is of step {}.", saved_step_)
          : "None is published yet.";
  if (!is_last_ && deck_.max_misses > 0 && misses_ >= deck_.max_misses) {
    throw Error(fmt::format(
        "{}{} Training ends, as this was the {}. in a row (checkpoint.max_misses).", what,
        newest, misses_));
  }
  // Whether the save of the last step is tried again, finish() decides, and says so if it
  // is not.
  const char* next = is_last_ ? "" : " Training goes on.";
  if (speaks) options_.warn(fmt::format("{}{}{}", what, newest, next));
}

void Checkpointing::finish(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
                           const ckpt::TrainingState& state, double step_seconds) {
  is_last_ = true;
  wait();
  for (int tries = 0; saved_step_ != state.step; ++tries) {
    if (tries == kLastTries) {
      throw Error(fmt::format(
          "the last checkpoint, of step {}, could not be written, nor at {} more:\n{}",
          state.step, format_plural(kLastTries - 1, "try", "tries"), last_error_));
    }
    start(exec, parts, state, step_seconds);
    wait();
  }
}

}  // namespace trireme::run

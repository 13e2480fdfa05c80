// run/checkpointing.hpp — the checkpoints of a run: each is written beside the steps
// that follow it, and one that fails is tried again.
#ifndef TRIREME_RUN_CHECKPOINTING_HPP_
#define TRIREME_RUN_CHECKPOINTING_HPP_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/event.hpp"
#include "base/exec.hpp"
#include "ckpt/saver.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace trireme::run {

class Checkpointing {
 public:
  struct Options {
    // Called on rank 0 with a line for people, and with what went wrong.
    std::function<void(const std::string&)> say = {};
    std::function<void(const std::string&)> warn = {};
    // Called on every rank when no save is under way and one begins: what is to be saved
    // may be completed then.
    std::function<void()> prepare = [] {};
    // Called on rank 0 when a save is published, with the seconds that it was begun with
    // and those that it took.
    std::function<void(std::int64_t step, double step_seconds, double save_seconds)>
        saved = {};
    // Called on every rank when a save has ended, published or failed, with the seconds
    // that this rank itself took.
    std::function<void(std::int64_t step, bool is_published, double own_seconds)> ended =
        {};
    // Called on rank 0, beside training, before a checkpoint is published.
    std::function<void()> before_publish = {};
    ckpt::FaultHook hook = {};
  };

  // Collective. `parts` are like those that begin() will get: memory for their copy is
  // taken now, and a queue for it beside `exec`.
  Checkpointing(const config::Deck& deck, comm::Communicator& world,
                const std::string& host, const Exec& exec,
                const std::vector<ckpt::TensorPart>& parts, const Options& options);

  // Collective. Begins to save, once the save before has ended; nothing to do where this
  // step is saved or being saved. `step_seconds`: in steps so far, of this start. Error
  // when checkpoint.max_misses in a row have failed.
  void begin(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
             const ckpt::TrainingState& state, double step_seconds);
  // What has to be past before weights and moments are written again, after begin().
  const Event& state_copied() const { return saver_.copied(); }
  // Moves the save that is under way on. Collective, after each step.
  void advance();
  // Collective: the end of training. Waits for the save that is under way; where there is
  // none of this step, or it fails, saves (again). Error where that cannot be.
  void finish(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
              const ckpt::TrainingState& state, double step_seconds);

  // Collective: waits for the save that is under way, if any; not before begin() and
  // finish(), which do.
  void wait();
  // Whether a save does not come to its end. The destructor would wait for it for ever.
  bool has_given_up() const { return saver_.has_given_up(); }

  // Host memory for the copy that a save in the background is written from.
  std::size_t copy_bytes() const { return saver_.staging_bytes(); }

  // The step of the save that is under way; -1: there is none.
  std::int64_t step_under_way() const { return step_under_way_; }
  // The step of the newest that this start has published, or went on from; -1: none.
  std::int64_t saved_step() const { return saved_step_; }
  void set_saved_step(std::int64_t step) { saved_step_ = step; }
  // How many this start has published.
  int published() const { return published_; }
  // The longest that a save has taken, from its beginning to its publication; 0: none
  // yet.
  double longest_seconds() const { return longest_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;

  double seconds_stopped() const;
  void settle(const ckpt::SaveReport& report);
  void start(const Exec& exec, const std::vector<ckpt::TensorPart>& parts,
             const ckpt::TrainingState& state, double step_seconds);

  const config::CheckpointConfig& deck_;
  comm::Communicator& world_;
  Options options_;
  double hang_timeout_;
  ckpt::Saver saver_;
  std::int64_t step_under_way_ = -1;
  double step_seconds_ = 0.0;
  Clock::time_point stopped_since_;        // training, for the save under way
  std::optional<double> stopped_seconds_;  // then it went on; none: it stands still
  std::int64_t saved_step_ = -1;
  int published_ = 0;
  bool is_last_ = false;
  index_t misses_ = 0;  // in a row
  std::string last_error_;
  double longest_seconds_ = 0.0;
};

}  // namespace trireme::run

#endif  // TRIREME_RUN_CHECKPOINTING_HPP_

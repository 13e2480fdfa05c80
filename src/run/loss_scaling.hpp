// run/loss_scaling.hpp — the loss scale of a run: from the deck and from checkpoints, and
// what becomes of a step whose gradients are not finite.
#ifndef TRIREME_RUN_LOSS_SCALING_HPP_
#define TRIREME_RUN_LOSS_SCALING_HPP_

#include <string>

#include "ckpt/training_state.hpp"
#include "config/deck.hpp"
#include "optim/loss_scale.hpp"
#include "optim/optimizer.hpp"

namespace trireme::run {

class LossScaling {
 public:
  // Begins the deck's run: `state` gets its first scale, 1 where the type needs none.
  LossScaling(const config::Deck& deck, ckpt::TrainingState& state);
  // Goes on from what `state` was restored to, a checkpoint of a run with the deck
  // `before`. A run that computed in another type, or that is to, begins with the deck's
  // scale; so does one whose deck has another `initial` than that, and one with a
  // constant scale that the user names (`names_initial`). Another hysteresis begins anew.
  // What to tell the user of the scale, or nothing.
  std::string resume(const config::Deck& before, bool names_initial,
                     ckpt::TrainingState& state);

  double scale() const { return has_scale_ ? scale_.scale() : 1.0; }
  // For the step to come, and those behind it whose scale follows from its report.
  optim::LossScale rules() const { return has_scale_ ? scale_ : optim::LossScale(1.0); }
  // Whether a step with this report can be left out and the run go on: its loss is finite
  // and a smaller scale may mend its gradients.
  bool can_skip(const optim::StepReport& report) const;
  // What to do about a step that could not. Empty in types without a scale.
  std::string advice(const optim::StepReport& report) const;
  // After a step that was made, or left out. What to tell the user, or nothing.
  std::string note_step(const optim::StepReport& report, ckpt::TrainingState& state);

 private:
  void store(ckpt::TrainingState& state) const;

  bool has_scale_;
  config::LossScaleConfig rules_;
  optim::LossScale scale_;
};

// The update that the step after `state` is to make, from 1: steps that were left out
// count neither for the learning rate nor for Adam's bias correction.
inline std::int64_t next_update(const ckpt::TrainingState& state) {
  return state.step + 1 - state.skipped_steps;
}

}  // namespace trireme::run

#endif  // TRIREME_RUN_LOSS_SCALING_HPP_

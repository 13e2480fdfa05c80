// run/loss_scaling.cpp — see loss_scaling.hpp.
#include "run/loss_scaling.hpp"

#include <fmt/format.h>

#include "base/plural.hpp"

namespace trireme::run {

namespace {
// In the numbers of a TrainingState, of runs that scale their loss.
constexpr char kOverflowsLeft[] = "loss_scale_overflows_left";
}  // namespace

LossScaling::LossScaling(const config::Deck& deck, ckpt::TrainingState& state)
    : has_scale_(deck.precision.compute == config::Precision::fp16),
      scale_({.dynamic = deck.precision.loss_scale.dynamic,
              .initial = deck.precision.loss_scale.initial,
              .minimum = deck.precision.loss_scale.minimum,
              .window = deck.precision.loss_scale.window,
              .hysteresis = deck.precision.loss_scale.hysteresis}) {
  store(state);
}

void LossScaling::resume(ckpt::TrainingState& state) {
  const auto left = state.numbers.find(kOverflowsLeft);
  if (has_scale_ && left != state.numbers.end()) {
    scale_.restore({.scale = state.loss_scale,
                    .finite_steps = state.loss_scale_steps,
                    .overflows_left = static_cast<std::int64_t>(left->second)});
  }
  store(state);
}

void LossScaling::store(ckpt::TrainingState& state) const {
  state.loss_scale = scale();
  state.loss_scale_steps = has_scale_ ? scale_.state().finite_steps : 0;
  if (has_scale_) {
    state.numbers[kOverflowsLeft] = static_cast<double>(scale_.state().overflows_left);
  } else {
    state.numbers.erase(kOverflowsLeft);
  }
}

bool LossScaling::can_skip(const optim::StepReport& report) const {
  return has_scale_ && report.has_finite_losses() && !scale_.is_least();
}

std::string LossScaling::note_step(const optim::StepReport& report,
                                   ckpt::TrainingState& state) {
  if (!has_scale_) return {};
  const double before = scale();
  scale_.update(!report.is_finite());
  store(state);
  if (report.is_finite()) return {};
  const std::string then =
      before == scale() ? fmt::format("the loss scale stays at {}", before)
                        : fmt::format("the loss scale, {}, is now {}", before, scale());
  return fmt::format(
      "step {}: a gradient overflowed; weights are left as they were, {} ({} of {} "
      "left out so far)",
      state.step, then, state.skipped_steps, format_plural(state.step, "step"));
}

}  // namespace trireme::run

// run/loss_scaling.cpp — see loss_scaling.hpp.
#include "run/loss_scaling.hpp"

#include <fmt/format.h>

#include "base/plural.hpp"

namespace trireme::run {

namespace {
// In the numbers of a TrainingState, of runs that scale their loss.
constexpr char kOverflowsLeft[] = "loss_scale_overflows_left";

optim::LossScale first_scale(const config::LossScaleConfig& rules) {
  return optim::LossScale({.dynamic = rules.dynamic,
                           .initial = rules.initial,
                           .minimum = rules.minimum,
                           .window = rules.window,
                           .hysteresis = rules.hysteresis});
}

// The checkpoint's count of overflows; what no run can have written is as good as none.
std::int64_t count_of(double number) {
  constexpr double kMost = 1e15;
  return number >= 0.0 && number <= kMost ? static_cast<std::int64_t>(number) : 0;
}
}  // namespace

LossScaling::LossScaling(const config::Deck& deck, ckpt::TrainingState& state)
    : has_scale_(deck.precision.compute == config::Precision::fp16),
      rules_(deck.precision.loss_scale),
      scale_(first_scale(rules_)) {
  store(state);
}

std::string LossScaling::resume(const config::Deck& before, bool names_initial,
                                ckpt::TrainingState& state) {
  const config::LossScaleConfig& then = before.precision.loss_scale;
  const auto left = state.numbers.find(kOverflowsLeft);
  const bool goes_on = has_scale_ && left != state.numbers.end();
  const double kept = state.loss_scale;
  scale_ = first_scale(rules_);
  if (goes_on) {
    const bool takes_initial =
        then.initial != rules_.initial || (!rules_.dynamic && names_initial);
    optim::LossScale::State next = scale_.state();
    if (!takes_initial || rules_.initial == kept) {
      next.scale = kept;
      next.finite_steps = state.loss_scale_steps;
      if (then.dynamic == rules_.dynamic && then.hysteresis == rules_.hysteresis) {
        next.overflows_left = count_of(left->second);
      }
    }
    scale_.restore(next);
  }
  store(state);
  if (!goes_on) return {};
  if (scale() != kept) {
    return fmt::format("the loss scale is {} from step {} on; it had come to {}", scale(),
                       state.step + 1, kept);
  }
  if (rules_.dynamic || !then.dynamic) return {};
  return fmt::format(
      "the loss scale stays at {}, to which it had come (precision.loss_scale.initial "
      "sets another)",
      kept);
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
  return has_scale_ && report.has_finite_losses() && scale_.can_skip();
}

std::string LossScaling::advice(const optim::StepReport& report) const {
  if (!has_scale_) return {};
  if (!report.has_finite_losses()) {
    return "fp16 ends at 65504, and no loss scale changes what the forward pass makes: "
           "precision.compute: bf16 has the range of fp32";
  }
  if (!rules_.dynamic) {
    return fmt::format(
        "{} in a row overflowed at the constant loss scale {}: take a smaller "
        "precision.loss_scale.initial, or precision.loss_scale.dynamic: true",
        format_plural(optim::LossScale::kConstantPatience, "step"), scale());
  }
  return fmt::format(
      "The loss scale is {}, and precision.loss_scale.minimum, {}, lets it fall no "
      "further: take a smaller minimum, or precision.compute: bf16, which has the range "
      "of fp32",
      scale(), rules_.minimum);
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

// optim/loss_scale.hpp — the factor on the loss of a run in fp16, whose gradients would
// otherwise fall below the least number of the type.
//
// Megatron-LM's rules: a step whose gradients overflow is left out; the `hysteresis`-th
// such step since the scale last grew, and each one after it, halves the scale, down to
// `minimum`; `window` finite steps in a row double it and forget the overflows. A
// constant scale leaves out such steps as well, but not for ever. Micikevicius et al.
// 2018, arXiv:1710.03740
//
// The scale of a step follows from what became of the step before, which the host may not
// know yet when it launches: so the device goes by these rules itself (Optimizer), and
// the host repeats them as reports come.
#ifndef TRIREME_OPTIM_LOSS_SCALE_HPP_
#define TRIREME_OPTIM_LOSS_SCALE_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <limits>

namespace trireme::optim {

struct LossScaleRules {
  bool dynamic = true;  // false: the scale stays
  double initial = 65536.0, minimum = 1.0;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
};

class LossScale {
 public:
  // Of so many overflows in a row at a constant scale the last is not left out: waiting
  // does not mend them.
  static constexpr std::int64_t kConstantPatience = 16;

  // What changes in the course of a run, for checkpoints.
  struct State {
    double scale = 1.0;
    std::int64_t finite_steps = 0;  // in a row
    // Until the scale is halved; of a constant one, in a row until can_skip() is false.
    std::int64_t overflows_left = 0;
  };

  KOKKOS_INLINE_FUNCTION explicit LossScale(const LossScaleRules& rules)
      : rules_(rules), state_{rules.initial, 0, patience()} {}
  // A constant scale, with which no step can be left out: of types that need none.
  KOKKOS_INLINE_FUNCTION LossScale(double constant)
      : LossScale({.dynamic = true,
                   .initial = constant,
                   .minimum = constant,
                   .window = kNever}) {}
  // Goes on from a checkpoint, as far as the rules allow its state.
  void restore(const State& state);

  KOKKOS_INLINE_FUNCTION double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  // Whether a step that overflows now may be left out. Not where no smaller scale is to
  // come: what overflows then does so at any.
  KOKKOS_INLINE_FUNCTION bool can_skip() const {
    return rules_.dynamic ? state_.scale > rules_.minimum : state_.overflows_left > 1;
  }
  // After a step with this scale.
  KOKKOS_INLINE_FUNCTION void update(bool has_overflow) {
    if (!rules_.dynamic) {
      state_.overflows_left = has_overflow ? one_less() : kConstantPatience;
      return;
    }
    if (has_overflow) {
      state_.finite_steps = 0;
      state_.overflows_left = one_less();
      if (state_.overflows_left == 0) {
        // Never larger than it was, whatever the minimum.
        const double half = state_.scale / 2.0;
        const double next = half > rules_.minimum ? half : rules_.minimum;
        if (next < state_.scale) state_.scale = next;
      }
      return;
    }
    if (++state_.finite_steps < rules_.window) return;
    state_.finite_steps = 0;
    state_.overflows_left = rules_.hysteresis;
    state_.scale *= 2.0;
  }

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  KOKKOS_INLINE_FUNCTION std::int64_t patience() const {
    return rules_.dynamic ? rules_.hysteresis : kConstantPatience;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t one_less() const {
    return state_.overflows_left > 0 ? state_.overflows_left - 1 : 0;
  }

  LossScaleRules rules_;
  State state_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_LOSS_SCALE_HPP_

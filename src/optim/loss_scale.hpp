// optim/loss_scale.hpp — the factor on the loss of a run in fp16, whose gradients would
// otherwise fall below the least number of the type.
//
// Megatron-LM's rules: a step whose gradients overflow is left out; the `hysteresis`-th
// such step since the scale last grew, and each one after it, halves the scale, down to
// `minimum`; `window` finite steps in a row double it and forget the overflows. A
// constant scale leaves out such steps as well, but not for ever. Micikevicius et al.
// 2018, arXiv:1710.03740
#ifndef TRIREME_OPTIM_LOSS_SCALE_HPP_
#define TRIREME_OPTIM_LOSS_SCALE_HPP_

#include <cstdint>

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

  explicit LossScale(const LossScaleRules& rules)
      : rules_(rules), state_{rules.initial, 0, patience()} {}
  // Goes on from a checkpoint, as far as the rules allow its state.
  void restore(const State& state);

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  // Whether a step that overflows now may be left out. Not where no smaller scale is to
  // come: what overflows then does so at any.
  bool can_skip() const {
    return rules_.dynamic ? state_.scale > rules_.minimum : state_.overflows_left > 1;
  }
  // After a step with this scale.
  void update(bool has_overflow);

 private:
  std::int64_t patience() const {
    return rules_.dynamic ? rules_.hysteresis : kConstantPatience;
  }

  LossScaleRules rules_;
  State state_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_LOSS_SCALE_HPP_

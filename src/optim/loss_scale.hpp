// optim/loss_scale.hpp — the factor on the loss of a run in fp16, whose gradients would
// otherwise fall below the least number of the type.
//
// Megatron-LM's rules: a step whose gradients overflow is left out; the `hysteresis`-th
// such step since the scale last grew, and each one after it, halves the scale, down to
// `minimum`; `window` finite steps in a row double it and forget the overflows.
// Micikevicius et al. 2018, arXiv:1710.03740
#ifndef TRIREME_OPTIM_LOSS_SCALE_HPP_
#define TRIREME_OPTIM_LOSS_SCALE_HPP_

#include <cstdint>

namespace trireme::optim {

struct LossScaleRules {
  bool dynamic = true;  // false: `initial` throughout
  double initial = 65536.0, minimum = 1.0;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
};

class LossScale {
 public:
  // What changes in the course of a run, for checkpoints.
  struct State {
    double scale = 1.0;
    std::int64_t finite_steps = 0;    // in a row
    std::int64_t overflows_left = 0;  // until the scale is halved
  };

  explicit LossScale(const LossScaleRules& rules)
      : rules_(rules), state_{rules.initial, 0, rules.hysteresis} {}
  // Goes on from a checkpoint; of a constant scale nothing is taken.
  void restore(const State& state);

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  // Whether an overflow can make the scale no smaller: what overflows then does so at
  // any.
  bool is_least() const { return rules_.dynamic && state_.scale <= rules_.minimum; }
  // After a step with this scale.
  void update(bool has_overflow);

 private:
  LossScaleRules rules_;
  State state_;
};

}  // namespace trireme::optim

#endif  // TRIREME_OPTIM_LOSS_SCALE_HPP_

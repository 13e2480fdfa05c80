// optim/loss_scale.cpp — see loss_scale.hpp.
#include "optim/loss_scale.hpp"

#include <algorithm>

namespace trireme::optim {

void LossScale::restore(const State& state) {
  state_ = state;
  if (rules_.dynamic) state_.scale = std::max(state_.scale, rules_.minimum);
  state_.overflows_left = std::clamp<std::int64_t>(state_.overflows_left, 0, patience());
}

void LossScale::update(bool has_overflow) {
  const auto one_less = [](std::int64_t count) {
    return std::max<std::int64_t>(count - 1, 0);
  };
  if (!rules_.dynamic) {
    state_.overflows_left =
        has_overflow ? one_less(state_.overflows_left) : kConstantPatience;
    return;
  }
  if (has_overflow) {
    state_.finite_steps = 0;
    state_.overflows_left = one_less(state_.overflows_left);
    if (state_.overflows_left == 0) {
      // Never larger than it was, whatever the minimum.
      state_.scale = std::min(state_.scale, std::max(state_.scale / 2.0, rules_.minimum));
    }
    return;
  }
  if (++state_.finite_steps < rules_.window) return;
  state_.finite_steps = 0;
  state_.overflows_left = rules_.hysteresis;
  state_.scale *= 2.0;
}

}  // namespace trireme::optim

// optim/loss_scale.cpp — see loss_scale.hpp.
#include "optim/loss_scale.hpp"

#include <algorithm>

namespace trireme::optim {

void LossScale::restore(const State& state) {
  if (rules_.dynamic) state_ = state;
}

void LossScale::update(bool has_overflow) {
  if (!rules_.dynamic) return;
  if (has_overflow) {
    state_.finite_steps = 0;
    state_.overflows_left = std::max<std::int64_t>(state_.overflows_left - 1, 0);
    if (state_.overflows_left == 0) {
      state_.scale = std::max(state_.scale / 2.0, rules_.minimum);
    }
    return;
  }
  if (++state_.finite_steps < rules_.window) return;
  state_.finite_steps = 0;
  state_.overflows_left = rules_.hysteresis;
  state_.scale *= 2.0;
}

}  // namespace trireme::optim

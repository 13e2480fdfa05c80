// optim/loss_scale.cpp — see loss_scale.hpp.
#include "optim/loss_scale.hpp"

#include <algorithm>

namespace trireme::optim {

void LossScale::restore(const State& state) {
  state_ = state;
  if (rules_.dynamic) state_.scale = std::max(state_.scale, rules_.minimum);
  state_.overflows_left = std::clamp<std::int64_t>(state_.overflows_left, 0, patience());
}

}  // namespace trireme::optim

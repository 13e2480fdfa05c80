// kernels/step_state.hpp — what changes from step to step, where kernels read it.
//
// One StepState lives in device memory; kernels take a View of it, never its values, so
// that the launches of a micro-batch are the same every time (and can be captured as a
// graph).
#ifndef TRIREME_KERNELS_STEP_STATE_HPP_
#define TRIREME_KERNELS_STEP_STATE_HPP_

#include <cstdint>

#include "base/exec.hpp"

namespace trireme::kernels {

struct StepState {
  std::uint64_t seed = 0;         // of dropout
  std::uint64_t sample_base = 0;  // global position of the micro-batch's first sample
  std::uint64_t step = 0;         // number of the update under way, from 1
  double learning_rate = 0.0;
  double bias_correction1 = 1.0;  // 1 - beta1^k of the update under way, k from 1
  double bias_correction2 = 1.0;
  // What multiplies every gradient before it is used: loss-scale, token-count and
  // clipping corrections in one factor.
  double gradient_scale = 1.0;
  // What the loss gradient is multiplied with: loss scale / (global batch * sequence).
  double loss_gradient_scale = 1.0;
};

using StepStateView = View0<const StepState>;

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_STEP_STATE_HPP_

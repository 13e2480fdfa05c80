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

inline constexpr int kMostObjectives = 4;

struct StepState {
  std::uint64_t seed = 0;         // of dropout
  std::uint64_t sample_base = 0;  // global position of the micro-batch's first sample
  std::uint64_t step = 0;         // number of the update under way, from 1
  double learning_rate = 0.0;
  double bias_correction1 = 1.0;  // 1 - beta1^k of the update under way, k from 1
  double bias_correction2 = 1.0;
  double loss_scale = 1.0;  // of the gradients that the passes make
  // What multiplies every gradient before it is used: loss-scale and clipping corrections
  // in one factor.
  double gradient_scale = 1.0;
  // Not 0: the update leaves weights and moments as they are, because a gradient or the
  // loss is not finite.
  std::int32_t skips_update = 0;
  // The sum of each objective's mask over the global batch, of those that are made here.
  double objective_count[kMostObjectives] = {1.0, 1.0, 1.0, 1.0};
};

using StepStateView = View0<const StepState>;

// One of a model's objectives, for the kernel that begins its backward pass.
struct ObjectiveScale {
  int index = 0;
  double weight = 1.0;  // in the loss

  // What the sum of mask * loss counts for in the loss, as the step scales it. Where
  // nothing counts in the whole global batch, the objective has no gradient.
  KOKKOS_INLINE_FUNCTION double in(const StepState& step) const {
    const double count = step.objective_count[index];
    return count > 0.0 ? weight * step.loss_scale / count : 0.0;
  }
};

// What a step or an evaluation leaves of an objective.
struct LossSum {
  double sum = 0.0;    // of mask * loss
  double count = 0.0;  // of mask
  double mean() const { return sum / count; }
};

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_STEP_STATE_HPP_

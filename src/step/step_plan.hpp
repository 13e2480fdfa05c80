// step/step_plan.hpp — what a training step takes and does, known before any memory is
// allocated: the step itself, TrainStep and Optimizer, is run once on shapes alone
// (Exec::shape_only), of any rank of groups that may be planned only.
#ifndef TRIREME_STEP_STEP_PLAN_HPP_
#define TRIREME_STEP_STEP_PLAN_HPP_

#include <map>

#include "base/tally.hpp"
#include "step/memory_plan.hpp"
#include "step/model_state.hpp"
#include "tensor/param_use.hpp"

namespace trireme::step {

// What one rank needs, computes and sends in a step.
struct StepPlan {
  MemoryPlan memory;
  Tally tally;  // what it computes and sends in a step
  // The part of it that the passes of its chunks are, by their kind. The rest is what
  // goes round them: messages between stages and of gradients, the optimizer.
  std::map<Pass, Tally> passes;
};

// `plans` are those of the state's pipeline: given, they are searched once for several
// stages.
template <class T>
StepPlan plan_step(const ModelState<T>& state, const StepShape& shape,
                   const PipelinePlans& plans);
template <class T>
StepPlan plan_step(const ModelState<T>& state, const StepShape& shape) {
  return plan_step(state, shape, {state.sharing.pipeline, state.blueprint, shape});
}

}  // namespace trireme::step

#endif  // TRIREME_STEP_STEP_PLAN_HPP_

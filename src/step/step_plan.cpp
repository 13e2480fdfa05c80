// step/step_plan.cpp — see step_plan.hpp.
#include "step/step_plan.hpp"

#include "optim/optimizer.hpp"
#include "step/train_step.hpp"

namespace trireme::step {

template <class T>
StepPlan plan_step(const ModelState<T>& state, const StepShape& shape,
                   const PipelinePlans& plans) {
  StepPlan plan;
  const Exec exec = Exec::shape_only(plan.tally);
  ModelState<T> shapes = state.without_memory();
  shapes.params.plan(shapes.registry, shapes.sharding());
  Timers timers;
  TrainStep<T> step(exec, shapes, shape, timers, plans);
  // No setting of an optimizer changes what a step takes.
  optim::Optimizer<T> optimizer(exec, shapes.params, shapes.groups, {}, 1.0);
  plan.tally = {};  // what making them does is no part of a step
  optimizer.begin_step(exec, step.state_view(), 1, 0.0);
  step.accumulate_gradients({}, [](const std::string&) { return 0.0; });
  optimizer.prepare(exec, step.state_view(), step.totals());
  step.update(optimizer);
  step.settle();
  plan.memory = step.memory();
  plan.passes = step.plan().passes;
  return plan;
}

#define TRIREME_INSTANTIATE(T)                                           \
  template StepPlan plan_step<T>(const ModelState<T>&, const StepShape&, \
                                 const PipelinePlans&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step

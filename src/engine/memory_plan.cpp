// engine/memory_plan.cpp — see memory_plan.hpp.
#include "engine/memory_plan.hpp"

#include "engine/shape_pass.hpp"
#include "parallel/data_parallel.hpp"

namespace trireme::engine {

std::size_t MemoryPlan::saved() const {
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < workspace.saved.size(); ++c) {
    bytes += workspace.saved[c] * static_cast<std::size_t>(workspace.slots[c]);
  }
  return bytes;
}

std::size_t MemoryPlan::total() const {
  return workspace.total() + weights + gradients + optimizer + batch + buffers +
         generation;
}

namespace {

template <class T>
void plan_parameters(const ModelState<T>& state, MemoryPlan& plan) {
  ParamBuffer<T> params;
  params.plan(state.registry, state.sharding());
  plan.weights = params.slab_bytes(Slab::weight) + params.compute_bytes();
  plan.gradients = params.slab_bytes(Slab::gradient);
  plan.optimizer = params.slab_bytes(Slab::exp_avg) + params.slab_bytes(Slab::exp_avg_sq);
  using parallel::DataParallel;
  plan.buffers = DataParallel<T>::planned_bytes(params, state.sequence_parallel());
  if (kHostExecution) plan.buffers += DataParallel<T>::planned_staging_bytes(params);
}

}  // namespace

template <class T>
MemoryPlan plan_memory(const ModelState<T>& state, const StepShape& shape, int slots) {
  MemoryPlan plan;
  plan_parameters(state, plan);
  ModelState<T> shapes = state.without_memory();
  const auto rows = static_cast<std::size_t>(shape.rows());
  plan.batch =
      static_cast<std::size_t>(slots) * rows * (3 * sizeof(std::int32_t) + sizeof(float));

  ShapePass<T> pass(shapes, shape);
  pass.forward();
  plan.saved_by_category = pass.saved.peak_by_category();
  for (std::size_t& bytes : plan.saved_by_category)
    bytes *= static_cast<std::size_t>(slots);
  pass.backward();

  plan.workspace.saved = {pass.saved.peak()};
  plan.workspace.slots = {slots};
  plan.workspace.scratch = pass.scratch.peak();
  plan.workspace.held = pass.held.peak();
  return plan;
}

#define TRIREME_INSTANTIATE(T) \
  template MemoryPlan plan_memory<T>(const ModelState<T>&, const StepShape&, int);
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine

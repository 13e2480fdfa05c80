// step/memory_plan.cpp — see memory_plan.hpp.
#include "step/memory_plan.hpp"

#include <algorithm>

#include "parallel/data_parallel.hpp"
#include "step/shape_pass.hpp"

namespace trireme::step {

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

// Arenas of the passes of each chunk.
template <class T>
void plan_passes(ModelState<T>& shapes, const StepShape& shape, const StageNeeds& needs,
                 MemoryPlan& plan) {
  Workspace::Plan& workspace = plan.workspace;
  workspace.slots = needs.slots;
  const bool later = needs.has_weight_passes;
  std::size_t thrown_away = 0;  // what layers save that are recomputed
  for (int c = 0; c < std::ssize(shapes.chunks); ++c) {
    ShapePass<T> pass(shapes, shape);
    pass.forward(c);
    thrown_away = std::max(thrown_away, pass.held.peak());
    pass.held = Arena();
    const auto slots = static_cast<std::size_t>(needs.slots[static_cast<std::size_t>(c)]);
    for (std::size_t i = 0; i < plan.saved_by_category.size(); ++i) {
      plan.saved_by_category[i] += pass.saved.peak_by_category()[i] * slots;
    }
    pass.backward(c, later ? model::WeightPass::later : model::WeightPass::now);
    workspace.held.push_back(pass.held.peak());
    if (later) pass.backward_weight(c);
    workspace.saved.push_back(pass.saved.peak());
    workspace.scratch = std::max(workspace.scratch, pass.scratch.peak());
  }
  if (later) {
    workspace.places = needs.places;
    // Beside micro-batches whose weight gradients are still to come.
    workspace.held.push_back(thrown_away);
    workspace.places.push_back(1);
    return;
  }
  // Empty between passes: one for all.
  const std::size_t most =
      *std::max_element(workspace.held.begin(), workspace.held.end());
  workspace.held = {std::max(most, thrown_away)};
  workspace.places = {1};
}

}  // namespace

template <class T>
MemoryPlan plan_memory(const ModelState<T>& state, const StepShape& shape) {
  const PipelinePlans plans(state.sharing.pipeline, state.blueprint, shape);
  return plan_memory(state, shape, plans.needs(state.groups.pipeline->rank()));
}

template <class T>
MemoryPlan plan_memory(const ModelState<T>& state, const StepShape& shape,
                       const StageNeeds& needs) {
  MemoryPlan plan;
  plan_parameters(state, plan);
  ModelState<T> shapes = state.without_memory();
  const BatchSpec spec = shape.batch_spec(state.blueprint.batch);
  for (const std::size_t field : state.fields()) {
    plan.batch += extent(needs.batches) * bytes_of_field(spec, field, shape.micro);
  }
  plan_passes(shapes, shape, needs, plan);
  const index_t border = largest(ShapePass<T>(shapes, shape).border_elements());
  plan.buffers += static_cast<std::size_t>(border * needs.buffers) * sizeof(T);
  return plan;
}

#define TRIREME_INSTANTIATE(T)                                               \
  template MemoryPlan plan_memory<T>(const ModelState<T>&, const StepShape&, \
                                     const StageNeeds&);                     \
  template MemoryPlan plan_memory<T>(const ModelState<T>&, const StepShape&);
TRIREME_FOR_EACH_MODEL_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::step

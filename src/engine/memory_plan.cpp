// engine/memory_plan.cpp — see memory_plan.hpp.
#include "engine/memory_plan.hpp"

namespace trireme::engine {

std::size_t MemoryPlan::saved() const {
  std::size_t bytes = 0;
  for (std::size_t c = 0; c < workspace.saved.size(); ++c) {
    bytes += workspace.saved[c] * static_cast<std::size_t>(workspace.slots[c]);
  }
  return bytes;
}

std::size_t MemoryPlan::total() const {
  return workspace.total() + weights + gradients + optimizer + batch + generation;
}

namespace {

template <class T>
void plan_parameters(const ModelState<T>& state, MemoryPlan& plan) {
  constexpr auto kAlignment = ParamBuffer<T>::kAlignment;
  index_t elements = 0;
  for (const ParamSpec& spec : state.registry.specs()) {
    const index_t count = element_count(spec.shard.local_shape);
    elements += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  using Master = Accumulator<T>;
  const std::size_t slab = static_cast<std::size_t>(elements) * sizeof(Master);
  plan.weights = slab;
  if (!std::is_same_v<T, Master>)
    plan.weights += static_cast<std::size_t>(elements) * sizeof(T);
  plan.gradients = slab;
  plan.optimizer = 2 * slab;
}

}  // namespace

template <class T>
MemoryPlan plan_memory(ModelState<T>& state, const StepShape& shape, int slots) {
  MemoryPlan plan;
  plan_parameters(state, plan);
  const auto rows = static_cast<std::size_t>(shape.rows());
  plan.batch =
      static_cast<std::size_t>(slots) * rows * (3 * sizeof(std::int32_t) + sizeof(float));

  Arena saved, scratch, held;
  const Exec exec = Exec::shape_only();
  const nn::Context context{.exec = exec,
                            .groups = state.groups,
                            .step = {},
                            .saved = saved,
                            .scratch = scratch,
                            .held = held,
                            .sequence = shape.sequence,
                            .batch = shape.micro};
  const View1<const std::int32_t> ids(static_cast<const std::int32_t*>(nullptr), rows);
  const View1<const float> mask(static_cast<const float*>(nullptr), rows);
  const model::Batch batch{ids, ids, ids, mask};
  model::Boundary<T> none;
  state.chunk.forward(context, 0, batch, none, none,
                      View1<double>(static_cast<double*>(nullptr), 2));
  plan.saved_by_category = saved.peak_by_category();
  for (std::size_t& bytes : plan.saved_by_category)
    bytes *= static_cast<std::size_t>(slots);
  state.chunk.backward(context, 0, batch, none, none, model::WeightPass::now);

  plan.workspace.saved = {saved.peak()};
  plan.workspace.slots = {slots};
  plan.workspace.scratch = scratch.peak();
  plan.workspace.held = held.peak();
  return plan;
}

#define TRIREME_INSTANTIATE(T) \
  template MemoryPlan plan_memory<T>(ModelState<T>&, const StepShape&, int);
TRIREME_FOR_EACH_COMPUTE_TYPE(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::engine

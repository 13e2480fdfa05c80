// plan/deck_memory.cpp — see deck_memory.hpp.
#include "plan/deck_memory.hpp"

#include "ckpt/params.hpp"
#include "inference/generation.hpp"
#include "step/deck_model.hpp"
#include "step/step_plan.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::plan {

step::MemoryPlan plan_memory(const step::ModelState<float>& state,
                             const config::Deck& deck) {
  return with_all_else(step::plan_step(state, step::step_shape(deck)).memory, state,
                       deck);
}

template <class T>
step::MemoryPlan with_all_else(step::MemoryPlan plan, const step::ModelState<T>& state,
                               const config::Deck& deck) {
  if (deck.run.sample_every.steps > 0) {
    plan.generation = inference::Generator<T>::planned_bytes(state);
  }
  if (deck.checkpoint.async) {
    ParamBuffer<T> params;
    params.plan(state.registry, state.sharding());
    plan.checkpoint_copy = ckpt::Snapshot::bytes_of(
        ckpt::parts_of(params, ckpt::Content::training, ckpt::replicas_of(state.groups)));
  }
  return plan;
}
template step::MemoryPlan with_all_else(step::MemoryPlan, const step::ModelState<float>&,
                                        const config::Deck&);
template step::MemoryPlan with_all_else(step::MemoryPlan, const step::ModelState<bf16>&,
                                        const config::Deck&);

}  // namespace trireme::plan

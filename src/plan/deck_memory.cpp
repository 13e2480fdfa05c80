// plan/deck_memory.cpp — see deck_memory.hpp.
#include "plan/deck_memory.hpp"

#include "ckpt/params.hpp"
#include "inference/generation.hpp"
#include "step/deck_model.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::plan {

step::MemoryPlan plan_memory(const step::ModelState<float>& state,
                             const config::Deck& deck) {
  const step::PipelinePlans plans(state.sharing.pipeline, state.blueprint,
                                  step::step_shape(deck));
  return plan_memory(state, deck, plans.needs(state.groups.pipeline->rank()));
}

template <class T>
step::MemoryPlan plan_memory(const step::ModelState<T>& state, const config::Deck& deck,
                             const step::StageNeeds& needs) {
  step::MemoryPlan plan = step::plan_memory(state, step::step_shape(deck), needs);
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
template step::MemoryPlan plan_memory(const step::ModelState<float>&, const config::Deck&,
                                      const step::StageNeeds&);
template step::MemoryPlan plan_memory(const step::ModelState<bf16>&, const config::Deck&,
                                      const step::StageNeeds&);

}  // namespace trireme::plan

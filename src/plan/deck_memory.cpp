// plan/deck_memory.cpp — see deck_memory.hpp.
#include "plan/deck_memory.hpp"

#include "ckpt/params.hpp"
#include "step/deck_model.hpp"

namespace trireme::plan {

step::MemoryPlan plan_memory(step::Replica& replica, const config::Deck& deck) {
  const step::ModelPart& part = replica.part();
  const step::StepShape shape = step::step_shape(deck);
  const step::PipelinePlans plans(part.sharing.pipeline, part.blueprint, shape);
  return with_all_else(replica.plan_step(shape, plans).memory, replica, deck);
}

step::MemoryPlan with_all_else(step::MemoryPlan plan, step::Replica& replica,
                               const config::Deck& deck) {
  if (deck.run.sample_every.steps > 0) plan.generation = replica.plan_decoder().total;
  if (deck.checkpoint.async) {
    plan.checkpoint_copy = ckpt::Snapshot::bytes_of(replica.parts());
  }
  return plan;
}

}  // namespace trireme::plan

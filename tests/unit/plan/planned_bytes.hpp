// What a deck's stages take by the plans of their own steps, all of them planned.
#ifndef TRIREME_TESTS_UNIT_PLAN_PLANNED_BYTES_HPP_
#define TRIREME_TESTS_UNIT_PLAN_PLANNED_BYTES_HPP_

#include <algorithm>

#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan::test {

// Of the stage that takes most.
inline double planned_bytes(const config::Deck& deck) {
  const step::Sharing shared = step::sharing(deck);
  const step::StepShape shape = step::step_shape(deck);
  const step::PipelinePlans plans(shared.pipeline, model::make_blueprint(deck.model),
                                  shape);
  double most = 0.0;
  for (int stage = 0; stage < deck.parallel.pipeline; ++stage) {
    const auto replica =
        step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
    const step::MemoryPlan plan =
        with_all_else(replica->plan_step(shape, plans).memory, *replica, deck);
    most = std::max(most, static_cast<double>(plan.total()));
  }
  return most;
}

}  // namespace trireme::plan::test

#endif  // TRIREME_TESTS_UNIT_PLAN_PLANNED_BYTES_HPP_

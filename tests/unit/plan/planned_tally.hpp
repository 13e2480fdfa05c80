// What a stage of a deck computes and sends in a step, by the plan of its own step.
#ifndef TRIREME_TESTS_UNIT_PLAN_PLANNED_TALLY_HPP_
#define TRIREME_TESTS_UNIT_PLAN_PLANNED_TALLY_HPP_

#include "base/tally.hpp"
#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan::test {

inline Tally planned_tally(const config::Deck& deck, int stage) {
  const step::Sharing shared = step::sharing(deck);
  const auto replica =
      step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
  const step::StepShape shape = step::step_shape(deck);
  return replica->plan_step(shape, {shared.pipeline, replica->part().blueprint, shape})
      .tally;
}

}  // namespace trireme::plan::test

#endif  // TRIREME_TESTS_UNIT_PLAN_PLANNED_TALLY_HPP_

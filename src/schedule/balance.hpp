// schedule/balance.hpp — how a model's layers are dealt to the pieces of a pipeline.
#ifndef TRIREME_SCHEDULE_BALANCE_HPP_
#define TRIREME_SCHEDULE_BALANCE_HPP_

#include "schedule/choice.hpp"
#include "schedule/division.hpp"

namespace trireme::schedule {

// The layers dealt to the pieces so that a step takes least time by simulation. First and
// last piece may get none (they have the embedding and the head), the others get one at
// least: pieces() <= layers + 2.
Split balance(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_BALANCE_HPP_

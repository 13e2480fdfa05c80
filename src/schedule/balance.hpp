// schedule/balance.hpp — how a model's layers are dealt to the pieces of a pipeline.
#ifndef TRIREME_SCHEDULE_BALANCE_HPP_
#define TRIREME_SCHEDULE_BALANCE_HPP_

#include "schedule/choice.hpp"
#include "schedule/division.hpp"

namespace trireme::schedule {

// Divisions are compared by their price: the seconds of a step by simulation, and what
// the fullest stage holds more than that of the even division as time, each per cent of
// it a fifth of a per cent.
inline constexpr double kTimeForMemory = 0.2;
double price_of(const Demand& demand, const Demand& of_even);

// The layers dealt to the pieces at the least price: evenly, unless another division
// costs at least a hundredth less. First and last piece may get none (they have the
// embedding and the head), the others get one at least: pieces() <= layers + 2.
inline constexpr double kLeastGain = 0.01;
Split balance(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_BALANCE_HPP_

// schedule/balance.hpp — how a model's layers are dealt to the pieces of a pipeline, and
// which order of passes is fastest: found by simulation.
#ifndef TRIREME_SCHEDULE_BALANCE_HPP_
#define TRIREME_SCHEDULE_BALANCE_HPP_

#include <vector>

#include "config/enums.hpp"
#include "schedule/simulate.hpp"

namespace trireme::schedule {

using config::PipelineSchedule;

// What the parts of a model cost, for one micro-batch.
struct ModelCost {
  PieceCost layer;
  PieceCost embedding;  // of the first piece
  PieceCost head;       // of the last: final norm, logits and loss
  int recomputed = 0;   // layers of each piece that the backward pass makes again
  double message = 0.0, message_work = 0.0;  // see Costs
};

// Layers of each piece, in the order of the model.
using Split = std::vector<int>;

Costs costs_of(const Split& split, const ModelCost& model);

struct Choice {
  std::vector<Order> orders;
  int groups = 1;  // of interleaved()
  double seconds = 0.0;
};
// The fastest orders of a kind, by simulation; of those that are equally fast the one
// with fewest micro-batches in flight.
Choice choose_orders(const PipelineShape& shape, PipelineSchedule kind,
                     const Costs& costs);

// The layers dealt to the pieces so that a step takes least time by simulation. First and
// last piece may get none (they have the embedding and the head), the others get one at
// least: pieces() <= layers + 2.
Split balance(const PipelineShape& shape, PipelineSchedule kind, int layers,
              const ModelCost& model);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_BALANCE_HPP_

// schedule/balance.hpp — how a model's layers are dealt to the pieces of a pipeline, and
// which order of passes is fastest: found by simulation.
#ifndef TRIREME_SCHEDULE_BALANCE_HPP_
#define TRIREME_SCHEDULE_BALANCE_HPP_

#include <memory>
#include <optional>
#include <vector>

#include "config/enums.hpp"
#include "schedule/simulate.hpp"

namespace trireme::schedule {

using config::PipelineSchedule;

// What the blocks of a model cost, for one micro-batch, in the order of the model.
struct ModelCost {
  struct Block {
    PieceCost cost;
    // Layers are dealt to the pieces; other blocks stay beside them.
    bool is_layer = false;
  };
  std::vector<Block> blocks;
  int recomputed = 0;  // layers of each piece that the backward pass makes again
  double message = 0.0, message_work = 0.0;  // see Costs

  std::vector<bool> layers() const;
};

// Layers of each piece, in the order of the model.
using Split = std::vector<int>;

// Where the pieces begin and end among the blocks: piece g has those from the g-th number
// to the next. A piece ends right behind its last layer; one that comes before all layers
// has all that stands before them. Worked example: the blocks "embedding, layer, layer,
// head" split 0 + 2 + 0 are cut at 0, 1, 3 and 4; split 1 + 1 at 0, 2 and 4.
std::vector<std::size_t> cuts_of(const Split& split, const std::vector<bool>& is_layer);

Costs costs_of(const Split& split, const ModelCost& model);

struct Choice {
  OrderOf order_of;
  // When each pass begins, where orders were searched for: with_messages() needs it.
  std::shared_ptr<const Timeline> timeline;
  int groups = 1;  // the argument of interleaved()
  // How long a step takes, where orders were simulated to choose among them. It is not
  // known where a rule gave the order, because there is but one, or because there are too
  // many passes to simulate (Megatron's groups, ZB-H1).
  std::optional<double> seconds;
};
// The fastest orders of a kind, by simulation where there are several; of those that are
// equally fast the one with fewest micro-batches in flight. Every rank calls this at its
// start, so that what is simulated is bounded: some tenths of a second, some ten
// megabytes.
Choice choose_orders(const PipelineShape& shape, PipelineSchedule kind,
                     const Costs& costs);
// How long a step takes with the orders chosen, at these costs. Simulates all stages
// where choose_orders() has not done so.
double seconds_of(const PipelineShape& shape, const Choice& choice, const Costs& costs);
// Whether a pipeline has few enough passes for choose_orders() to simulate it, and for
// whoever wants to see all stages' times.
bool is_simulated(const PipelineShape& shape, PipelineSchedule kind);

// The layers dealt to the pieces so that a step takes least time by simulation. First and
// last piece may get none (they have the embedding and the head), the others get one at
// least: pieces() <= layers + 2.
Split balance(const PipelineShape& shape, PipelineSchedule kind, const ModelCost& model);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_BALANCE_HPP_

// schedule/division.hpp — a model's layers divided among the pieces of a pipeline, and
// what a step takes of time and memory with them there.
#ifndef TRIREME_SCHEDULE_DIVISION_HPP_
#define TRIREME_SCHEDULE_DIVISION_HPP_

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/choice.hpp"
#include "schedule/simulate.hpp"

namespace trireme::schedule {

// What the blocks of a model cost, for one micro-batch, in the order of the model.
struct ModelCost {
  struct Block {
    PieceCost cost;
    // Layers are dealt to the pieces; other blocks stay beside them.
    bool is_layer = false;
    double parameters = 0.0;  // with those of a table that it shares
  };
  std::vector<Block> blocks;
  int recomputed = 0;  // layers of each piece that the backward pass makes again
  double message = 0.0, message_work = 0.0;  // see Costs
  // How much more layers may take than their costs say, as a share of these.
  double layers_more = 0.0;

  std::vector<bool> layers() const;
};

// Layers of each piece, in the order of the model.
using Split = std::vector<int>;

// As many layers for each piece as may be: where they do not come out even the first
// piece, which has the embedding, gets none of the rest, nor does the last one, which has
// the head, as long as the others can take it.
Split even_split(int layers, int pieces);

// The split whose pieces have as much work as so many mean layers each, as near as whole
// layers come; `alike` itself where layers are alike. Inner pieces keep a layer at least.
Split cut_by_work(const Split& alike, const ModelCost& model);

// Where the pieces begin and end among the blocks: piece g has those from the g-th number
// to the next. A piece ends right behind its last layer; one that comes before all layers
// has all that stands before them. Worked example: the blocks "embedding, layer, layer,
// head" split 0 + 2 + 0 are cut at 0, 1, 3 and 4; split 1 + 1 at 0, 2 and 4.
std::vector<std::size_t> cuts_of(const Split& split, const std::vector<bool>& is_layer);

Costs costs_of(const Split& split, const ModelCost& model);

// How many micro-batches each chunk of each stage keeps at a time.
using KeptMicrobatches = std::vector<std::vector<double>>;

// What a step takes with a division of the layers, in the order of passes that a run
// chooses then. Of memory: what depends on the division, of the stage that has most.
struct Demand {
  double seconds = 0.0;
  double parameters = 0.0;
  double activations = 0.0;  // those of a layer for a micro-batch are 1
};

// The demands of divisions on one pipeline. Orders of passes are made once for all of
// them.
class Divisions {
 public:
  // `most_passes`: that may be gone through for a division. A step of more than these is
  // looked at with fewer micro-batches, and goes on from there as it does between half of
  // them and all; one that has too many even so is not simulated.
  Divisions(const PipelineShape& shape, PipelineSchedule kind, double most_passes);

  bool are_simulated() const { return step_.has_value(); }
  // Where they are simulated.
  Demand demand_of(const Split& split, const ModelCost& model) const;

 private:
  struct Orders {
    std::vector<Order> passes;
    KeptMicrobatches kept;
  };
  // A step, and the orders that it may take; none where they are searched for.
  struct Step {
    PipelineShape shape;
    std::vector<Orders> orders;
  };
  struct Fastest {
    double seconds = 0.0;
    KeptMicrobatches kept;
  };

  std::optional<int> microbatches_within(double most_passes) const;
  Step step_of(int microbatches) const;
  Fastest fastest(const Step& step, const Costs& costs) const;
  Fastest whole_step(const Costs& costs) const;

  PipelineShape shape_;
  PipelineSchedule kind_;
  bool is_searched_;             // zero-bubble orders, which depend on the costs
  std::optional<Step> step_;     // that is looked at
  std::optional<Step> shorter_;  // half of it, where the step has more micro-batches
};

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_DIVISION_HPP_

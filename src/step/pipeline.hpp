// step/pipeline.hpp — how a model is cut into the pieces of a pipeline, and what its
// stages do in which order: pure functions of the deck, the same on every rank.
#ifndef TRIREME_STEP_PIPELINE_HPP_
#define TRIREME_STEP_PIPELINE_HPP_

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/types.hpp"
#include "comm/process_groups.hpp"
#include "model/blueprint.hpp"
#include "schedule/balance.hpp"
#include "schedule/plan.hpp"
#include "step/step_shape.hpp"

namespace trireme::step {

// Which layers are where: piece g is chunk g / stages of stage g % stages.
struct PipelineLayout {
  int stages = 1;
  int chunks = 1;         // of each stage
  schedule::Split split;  // layers of each piece; empty: one piece with all
  schedule::PipelineSchedule schedule = schedule::PipelineSchedule::one_f_one_b;

  schedule::PipelineShape shape(int microbatches) const {
    return {.stages = stages, .chunks = chunks, .microbatches = microbatches};
  }
};

// Where the pieces begin and end in the list of blocks: piece g is [cuts[g], cuts[g +
// 1]).
std::vector<std::size_t> piece_cuts(const PipelineLayout& layout,
                                    const model::Blueprint& blueprint);
// The chunks of a stage.
std::vector<model::BlockRange> chunk_ranges(const PipelineLayout& layout,
                                            const std::vector<std::size_t>& cuts,
                                            int stage);
// The tables that blocks of several stages use.
std::vector<comm::TiedParameter> tied_parameters(const PipelineLayout& layout,
                                                 const model::Blueprint& blueprint);

// What the blocks cost, modelled by their matrix products: a micro-batch's forward pass
// through the costliest layer is 1.
schedule::ModelCost modelled_cost(const model::Blueprint& blueprint,
                                  const StepShape& shape);
// What the pieces cost, each the sum of its blocks.
schedule::Costs modelled_costs(const PipelineLayout& layout,
                               const model::Blueprint& blueprint, const StepShape& shape);
// The layers dealt by these costs (schedule/balance.hpp).
schedule::Split balanced_split(const PipelineLayout& layout,
                               const model::Blueprint& blueprint, const StepShape& shape);

// What a stage needs for its training steps, of every number of micro-batches they may
// have, and for evaluation.
struct StageNeeds {
  // How many of its micro-batches each chunk keeps: those in flight, and those whose
  // weight passes are still to come.
  std::vector<int> slots, held_slots;
  int buffers = 0;                 // for messages between stages
  int batches = 0;                 // micro-batches whose fields are kept
  bool has_weight_passes = false;  // whether weight gradients have passes of their own
};

// What the stages of a pipeline do. A stage's plan takes time and memory in proportion to
// the stage's own passes; what is found by simulating all of them, which is bounded
// (schedule::choose_orders), is found once for each number of micro-batches. Copies share
// what was found.
class PipelinePlans {
 public:
  PipelinePlans(const PipelineLayout& layout, const model::Blueprint& blueprint,
                const StepShape& shape)
      : layout_(layout),
        costs_(modelled_costs(layout, blueprint, shape)),
        shape_(shape) {}

  // The plan of a training step, and of an evaluation, of so many micro-batches. The last
  // training plan is kept: whoever asks what a stage needs then asks for its plan.
  using StagePlan = std::shared_ptr<const schedule::StagePlan>;
  StagePlan training(int stage, int microbatches) const;
  StagePlan evaluation(int stage, int microbatches) const;
  StageNeeds needs(int stage) const;

 private:
  struct Found {
    std::map<int, schedule::Choice> choices;  // by micro-batches
    StagePlan last;
    std::pair<int, int> last_of = {-1, 0};  // stage, micro-batches
  };

  const schedule::Choice& choice(int microbatches) const;

  PipelineLayout layout_;
  schedule::Costs costs_;
  StepShape shape_;
  std::shared_ptr<Found> found_ = std::make_shared<Found>();
};

// The slot in which a stage keeps the fields of each micro-batch, from its first pass to
// its last.
struct BatchSlots {
  std::vector<int> of_microbatch;
  int count = 0;
};
BatchSlots batch_slots(const schedule::Order& actions, int microbatches);

}  // namespace trireme::step

#endif  // TRIREME_STEP_PIPELINE_HPP_

// plan/workload.hpp — what one rank computes, moves and sends in a step, and what it
// keeps, by piece of the model: so much for each layer of a class, so much for what
// stands round the layers. No machine is in it.
//
// It is taken from the steps' own plans on shapes (step/step_plan.hpp): models of one and
// of two layers of each run on a stage are planned, for one micro-batch and for two. What
// second layers add are layers, what a second micro-batch adds is a micro-batch, and the
// rest is what a step has once. So it holds for every kind of model that can be planned,
// and costs the same for models of any depth.
#ifndef TRIREME_PLAN_WORKLOAD_HPP_
#define TRIREME_PLAN_WORKLOAD_HPP_

#include <functional>
#include <map>
#include <utility>

#include "base/tally.hpp"
#include "base/types.hpp"
#include "config/deck.hpp"
#include "model/blueprint.hpp"
#include "plan/layer_runs.hpp"
#include "schedule/pipeline.hpp"
#include "step/model_state.hpp"
#include "step/step_plan.hpp"

namespace trireme::plan {

// The passes of one micro-batch.
struct PassWork {
  Tally forward;
  Tally backward;  // input gradients; weight gradients too, where they come at once
  Tally backward_weight;  // in a pass of their own
};

// Bytes of a rank, with gradients and state of its own (ZeRO 0).
struct MemoryWork {
  // Of each micro-batch in flight, of each chunk; of weight passes still to come.
  double saved = 0.0, held = 0.0;
  double scratch = 0.0;  // at a time
  double weights = 0.0, gradients = 0.0, optimizer = 0.0;
  double other = 0.0;  // batches, buffers, products
};

// What a chunk or a layer takes part in.
struct Work {
  PassWork passes;
  Tally step;             // once in a step
  double elements = 0.0;  // of parameters, with padding
  MemoryWork memory;
};

// What is the same for all layers of a chunk: `around` is what each of its micro-batches
// has beside its passes, which is messages between stages.
struct ChunkWork {
  Work own;
  Tally around;
};

// Plans small models when what they say is asked for the first time.
class Workloads {
 public:
  // The plan of a step of a stage, of a deck that says all but the model.
  using PlanStage = std::function<step::StepPlan(
      const config::Deck&, const model::Blueprint&, const step::Sharing&, int stage)>;

  // `deck`: the model, the precision and the attention; the others are not looked at.
  explicit Workloads(config::Deck deck);
  // The same of a model that no deck asks for.
  Workloads(config::Deck deck, model::Blueprint blueprint, PlanStage plan_stage);

  struct Key {
    int tensor = 1;
    index_t micro = 1;
    bool sequence = false;
    config::Recompute recompute = config::Recompute::none;
    bool splits_backward = false;  // zero bubble
    bool has_stages = false;       // a pipeline; else the only stage is known
    auto operator<=>(const Key&) const = default;
  };
  const LayerRuns& runs() const { return runs_; }
  // One layer of a class, and a chunk of that kind apart from its layers.
  const Work& layer(const Key& key, std::size_t layer_class);
  const ChunkWork& chunk(const Key& key, const PieceKind& kind);

 private:
  // With a layer of each run of the piece, and with two.
  struct Pair {
    Work single, twice;
  };
  const Pair& pair(const Key& key, const PieceKind& kind);
  Work planned(const Key& key, const SmallModel& small, int microbatches) const;

  config::Deck deck_;
  model::Blueprint blueprint_;
  LayerRuns runs_;
  PlanStage plan_stage_;
  template <class Of, class What>
  using Known = std::map<std::pair<Key, Of>, What>;
  Known<PieceKind, Pair> pairs_;
  Known<PieceKind, ChunkWork> chunks_;
  Known<std::size_t, Work> layers_;
};

// What a layout of a deck asks for.
Workloads::Key workload_key(const config::Deck& layout);
// The same of layers that are not made again.
Workloads::Key plain_key(Workloads::Key key);
// Its pipeline.
schedule::PipelineShape pipeline_shape(const config::Deck& layout);
// The order of passes of its stages: that of a rule (schedule/pipeline.hpp). A run may
// find a better one by simulation.
schedule::OrderOf order_by_rule(const schedule::PipelineShape& shape,
                                config::PipelineSchedule kind);

}  // namespace trireme::plan

#endif  // TRIREME_PLAN_WORKLOAD_HPP_

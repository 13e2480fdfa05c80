// plan/workload.hpp — what one rank computes, moves and sends in a step, and what it
// keeps, by piece of the model: so much for each layer, so much for what stands round the
// layers. No machine is in it.
//
// It is taken from the steps' own plans on shapes (step/step_plan.hpp): models of one and
// of two layers on each stage are planned, for one micro-batch and for two. What a second
// layer adds is a layer, what a second micro-batch adds is a micro-batch, and the rest is
// what a step has once. So it holds for every kind of model that can be planned, and
// costs the same for models of any depth.
#ifndef TRIREME_PLAN_WORKLOAD_HPP_
#define TRIREME_PLAN_WORKLOAD_HPP_

#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "base/tally.hpp"
#include "base/types.hpp"
#include "config/deck.hpp"
#include "schedule/pipeline.hpp"

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

// Where in the model a piece of a pipeline stands.
enum class StagePlace { only, first, inner, last };
inline constexpr std::size_t kStagePlaces = 4;
StagePlace place_of(const schedule::PipelineShape& shape, int piece);

struct Workload {
  Work layer;  // one of a chunk's
  // A chunk of a stage at that place, apart from its layers; `around`: what each of its
  // micro-batches has beside its passes, which is messages between stages.
  struct Chunk {
    Work own;
    Tally around;
  };
  std::array<Chunk, kStagePlaces> chunks;

  const Chunk& chunk(StagePlace place) const {
    return chunks.at(static_cast<std::size_t>(place));
  }
};

// Plans the small models when they are asked for the first time.
class Workloads {
 public:
  // `deck`: the model, the precision and the attention; the others are not looked at.
  explicit Workloads(config::Deck deck) : deck_(std::move(deck)) {}

  struct Key {
    int tensor = 1;
    index_t micro = 1;
    bool sequence = false;
    config::Recompute recompute = config::Recompute::none;
    bool splits_backward = false;  // zero bubble
    bool has_stages = false;       // a pipeline; else the only stage is known
    auto operator<=>(const Key&) const = default;
  };
  const Workload& of(const Key& key);

 private:
  config::Deck deck_;
  std::map<Key, Workload> known_;
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

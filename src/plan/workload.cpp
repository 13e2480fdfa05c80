// plan/workload.cpp — see workload.hpp.
//
// Pipelines are planned with three stages, of which the first has the embedding, the last
// the head, and the one between them neither. Example: the second stage of 2 + 2 + 2
// layers computes 2 layers and what a border costs, that of 1 + 1 + 1 layers one layer
// and the same: the difference is a layer, and without it the border is left.
#include "plan/workload.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

namespace {

constexpr int kStages = 3;

// The deck with so many layers on each stage and micro-batches in a step.
config::Deck small_deck(config::Deck deck, const Workloads::Key& key, int layers,
                        int microbatches) {
  const int stages = key.has_stages ? kStages : 1;
  deck.model.layers = stages * layers;
  deck.batch = {};
  deck.batch.micro = key.micro;
  deck.batch.global = key.micro * microbatches;
  deck.parallel = {};
  deck.parallel.tensor = key.tensor;
  deck.parallel.pipeline = stages;
  deck.parallel.data_auto = false;
  deck.parallel.sequence = key.sequence && key.tensor > 1;
  deck.parallel.zero = 0;
  if (key.has_stages) deck.parallel.stages.assign(kStages, layers);
  if (key.splits_backward) {
    deck.parallel.schedule = config::PipelineSchedule::zero_bubble;
  }
  deck.memory = {.recompute = key.recompute};
  return deck;
}

// What the plan of a stage of a small model says.
struct Planned {
  step::StepPlan plan;
  Tally step;  // without passes
  double elements = 0.0;
};

Planned plan_stage(const config::Deck& deck, int stage) {
  const step::Sharing shared = step::sharing(deck);
  const auto replica =
      step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
  const step::StepShape shape = step::step_shape(deck);
  const step::PipelinePlans plans(shared.pipeline, replica->part().blueprint, shape);
  Planned planned{.plan = replica->plan_step(shape, plans), .step = {}};
  planned.step = planned.plan.tally;
  for (const auto& [pass, tally] : planned.plan.passes) planned.step -= tally;
  const double element = shared.narrow_gradients ? 2.0 : 4.0;
  planned.elements = static_cast<double>(planned.plan.memory.gradients) / element;
  return planned;
}

// Of one micro-batch, of so many that the plan has.
PassWork passes_of(const step::StepPlan& plan) {
  PassWork work;
  for (const auto& [pass, tally] : plan.passes) {
    if (pass == Pass::forward) {
      work.forward += tally;
    } else if (pass == Pass::backward_weight) {
      work.backward_weight += tally;
    } else {
      work.backward += tally;
    }
  }
  return work;
}

MemoryWork memory_of(const step::MemoryPlan& plan) {
  MemoryWork memory{.scratch = static_cast<double>(plan.workspace.scratch),
                    .weights = static_cast<double>(plan.weights),
                    .gradients = static_cast<double>(plan.gradients),
                    .optimizer = static_cast<double>(plan.optimizer),
                    .other = static_cast<double>(plan.batch + plan.buffers)};
  for (const std::size_t saved : plan.workspace.saved) {
    memory.saved += static_cast<double>(saved);
  }
  for (const std::size_t held : plan.workspace.held) {
    memory.held = std::max(memory.held, static_cast<double>(held));
  }
  return memory;
}

MemoryWork difference(const MemoryWork& a, const MemoryWork& b) {
  return {.saved = a.saved - b.saved,
          .held = a.held - b.held,
          .scratch = a.scratch - b.scratch,
          .weights = a.weights - b.weights,
          .gradients = a.gradients - b.gradients,
          .optimizer = a.optimizer - b.optimizer,
          .other = a.other - b.other};
}

Work work_of(const Planned& planned) {
  return {.passes = passes_of(planned.plan),
          .step = planned.step,
          .elements = planned.elements,
          .memory = memory_of(planned.plan.memory)};
}

Work difference(const Work& a, const Work& b) {
  return {
      .passes = {.forward = a.passes.forward - b.passes.forward,
                 .backward = a.passes.backward - b.passes.backward,
                 .backward_weight = a.passes.backward_weight - b.passes.backward_weight},
      .step = a.step - b.step,
      .elements = a.elements - b.elements,
      .memory = difference(a.memory, b.memory)};
}

Workload make_workload(const config::Deck& deck, const Workloads::Key& key) {
  using enum StagePlace;
  const std::vector<StagePlace> places =
      key.has_stages ? std::vector{first, inner, last} : std::vector{only};
  const config::Deck one = small_deck(deck, key, 1, 1), two = small_deck(deck, key, 2, 1),
                     twice = small_deck(deck, key, 1, 2);
  Workload workload;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const int stage = static_cast<int>(i);
    const Planned single = plan_stage(one, stage), longer = plan_stage(two, stage),
                  repeated = plan_stage(twice, stage);
    const Work layer = difference(work_of(longer), work_of(single));
    if (places[i] == only || places[i] == inner) workload.layer = layer;
    Workload::Chunk& chunk = workload.chunks.at(static_cast<std::size_t>(places[i]));
    chunk.around = repeated.step - single.step;
    chunk.own = difference(work_of(single), layer);
    chunk.own.step -= chunk.around;
  }
  return workload;
}

}  // namespace

StagePlace place_of(const schedule::PipelineShape& shape, int piece) {
  if (shape.stages == 1) return StagePlace::only;
  if (piece == 0) return StagePlace::first;
  return piece + 1 == shape.pieces() ? StagePlace::last : StagePlace::inner;
}

const Workload& Workloads::of(const Key& key) {
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, make_workload(deck_, key)).first->second;
}

Workloads::Key plain_key(Workloads::Key key) {
  key.recompute = config::Recompute::none;
  return key;
}

schedule::PipelineShape pipeline_shape(const config::Deck& layout) {
  return {.stages = layout.parallel.pipeline,
          .chunks = layout.parallel.virtual_pipeline,
          .microbatches = static_cast<int>(layout.microbatches())};
}

Workloads::Key workload_key(const config::Deck& layout) {
  const config::ParallelConfig& p = layout.parallel;
  return {.tensor = p.tensor,
          .micro = layout.batch.micro,
          .sequence = p.sequence && p.tensor > 1,
          .recompute = layout.memory.recompute,
          .splits_backward = p.schedule == config::PipelineSchedule::zero_bubble,
          .has_stages = p.pipeline > 1};
}

schedule::OrderOf order_by_rule(const schedule::PipelineShape& shape,
                                config::PipelineSchedule kind) {
  return [=](int stage) {
    if (kind == config::PipelineSchedule::gpipe) {
      return schedule::all_forward_all_backward(shape, stage);
    }
    if (kind == config::PipelineSchedule::zero_bubble) {
      return schedule::zero_bubble_by_rule(shape, stage);
    }
    return shape.chunks == 1
               ? schedule::one_forward_one_backward(shape, stage)
               : schedule::interleaved(shape, stage, schedule::most_groups(shape));
  };
}

}  // namespace trireme::plan

// plan/workload.cpp — see workload.hpp.
//
// Pipelines are planned with three stages (layer_runs.hpp), of which the first has the
// embedding, the last the head, and the one between them neither. Example: the second
// stage of 2 + 2 + 2 layers computes 2 layers and what a border costs, that of 1 + 1 + 1
// layers one layer and the same: the difference is a layer, and without it the border is
// left. A chunk that has layers of several classes has a second one of each in the larger
// model; what one class adds is then known from a chunk that has no other.
#include "plan/workload.hpp"

#include <algorithm>
#include <utility>

#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

namespace {

// The deck of a small model's steps, all but the model itself: its attention is asked
// for, and a layer has that.
config::Deck small_deck(config::Deck deck, const Workloads::Key& key, int stages,
                        int microbatches) {
  deck.model.layers = 1;
  deck.model.decoder_layers = std::min<index_t>(deck.model.decoder_layers, 1);
  deck.batch = {};
  deck.batch.micro = key.micro;
  deck.batch.global = key.micro * microbatches;
  deck.parallel = {};
  deck.parallel.tensor = key.tensor;
  deck.parallel.pipeline = stages;
  deck.parallel.data_auto = false;
  deck.parallel.sequence = key.sequence && key.tensor > 1;
  deck.parallel.zero = 0;
  if (key.splits_backward) {
    deck.parallel.schedule = config::PipelineSchedule::zero_bubble;
  }
  deck.memory = {.recompute = key.recompute};
  return deck;
}

step::StepPlan plan_of_replica(const config::Deck& deck,
                               const model::Blueprint& blueprint,
                               const step::Sharing& sharing, int stage) {
  const auto replica = step::make_replica(
      step::compute_type(deck), planned_groups(deck.parallel, stage), blueprint, sharing);
  const step::StepShape shape = step::step_shape(deck);
  return replica->plan_step(shape, {sharing.pipeline, blueprint, shape});
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

Work difference(const Work& a, const Work& b) {
  return {
      .passes = {.forward = a.passes.forward - b.passes.forward,
                 .backward = a.passes.backward - b.passes.backward,
                 .backward_weight = a.passes.backward_weight - b.passes.backward_weight},
      .step = a.step - b.step,
      .elements = a.elements - b.elements,
      .memory = difference(a.memory, b.memory)};
}

}  // namespace

Workloads::Workloads(config::Deck deck)
    : Workloads(deck, model::make_blueprint(deck.model), &plan_of_replica) {}

Workloads::Workloads(config::Deck deck, model::Blueprint blueprint, PlanStage plan_stage)
    : deck_(std::move(deck)),
      blueprint_(std::move(blueprint)),
      runs_(blueprint_),
      plan_stage_(std::move(plan_stage)) {}

Work Workloads::planned(const Key& key, const SmallModel& small, int microbatches) const {
  const config::Deck deck =
      small_deck(deck_, key, static_cast<int>(small.split.size()), microbatches);
  const bool is_narrow = deck.precision.gradients != config::Gradients::fp32;
  const step::Sharing sharing{.sequence_parallel = deck.parallel.sequence,
                              .zero = 0,
                              .pipeline = {.stages = deck.parallel.pipeline,
                                           .chunks = 1,
                                           .split = small.split,
                                           .schedule = deck.parallel.schedule},
                              .narrow_gradients = is_narrow};
  const step::StepPlan plan = plan_stage_(deck, small.blueprint, sharing, small.stage);
  Work work{
      .passes = passes_of(plan),
      .step = plan.tally,
      .elements = static_cast<double>(plan.memory.gradients) / (is_narrow ? 2.0 : 4.0),
      .memory = memory_of(plan.memory)};
  for (const auto& [pass, tally] : plan.passes) work.step -= tally;
  return work;
}

auto Workloads::pair(const Key& key, const PieceKind& kind) -> const Pair& {
  const auto found = pairs_.find({key, kind});
  if (found != pairs_.end()) return found->second;
  const auto of = [&](index_t each) {
    return planned(key, small_model(blueprint_, runs_, kind, each), 1);
  };
  return pairs_.emplace(std::pair(key, kind), Pair{of(1), of(2)}).first->second;
}

const ChunkWork& Workloads::chunk(const Key& key, const PieceKind& kind) {
  const auto found = chunks_.find({key, kind});
  if (found != chunks_.end()) return found->second;
  const auto& [single, twice] = pair(key, kind);
  const Work repeated = planned(key, small_model(blueprint_, runs_, kind, 1), 2);
  ChunkWork chunk{.own = difference(single, difference(twice, single)),
                  .around = repeated.step - single.step};
  chunk.own.step -= chunk.around;
  return chunks_.emplace(std::pair(key, kind), std::move(chunk)).first->second;
}

const Work& Workloads::layer(const Key& key, std::size_t layer_class) {
  const auto found = layers_.find({key, layer_class});
  if (found != layers_.end()) return found->second;
  const std::size_t run = runs_.first_run(layer_class);
  Work layer;
  if (key.has_stages || runs_.runs().size() == 1) {
    const auto& [single, twice] =
        pair(key, key.has_stages ? LayerRuns::within(run) : runs_.whole());
    layer = difference(twice, single);
  } else {
    const Work more = planned(key, small_whole(blueprint_, runs_, run), 1);
    layer = difference(more, pair(key, runs_.whole()).single);
  }
  return layers_.emplace(std::pair(key, layer_class), std::move(layer)).first->second;
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

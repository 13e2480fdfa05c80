// plan/layout_memory.cpp — see layout_memory.hpp.
//
// Of the stages with the same layers the first is looked at, which has most micro-batches
// in flight. For example of 10 layers on four stages, 2 + 3 + 3 + 2, the stages 0 and 1
// and the last: the second takes most, with a layer more than the first and one
// micro-batch less. A schedule's slots and buffers come from the order itself, as a run
// has them, and not from a formula of what is in flight at a time: each chunk of a
// virtual pipeline has slots of its own, which are not all full at the same moment.
// Orders are made once for each shape of pipeline, and only of as many micro-batches as
// it takes to see all slots in use.
//
// A run may choose another order than the rule's, and what searches print is planned as a
// run would plan it.
#include "plan/layout_memory.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/tally.hpp"
#include "model/blueprint.hpp"
#include "plan/counts.hpp"
#include "plan/deck_memory.hpp"
#include "schedule/division.hpp"
#include "schedule/pipeline.hpp"
#include "schedule/plan.hpp"
#include "step/deck_model.hpp"
#include "step/memory_plan.hpp"
#include "step/model_state.hpp"
#include "step/pipeline.hpp"
#include "step/replica.hpp"

namespace trireme::plan {

namespace {

using config::PipelineSchedule;
using config::Recompute;
using schedule::PipelineShape;

// Bytes of a micro-batch, of so many scores of a sample, where they are written to
// memory: softmax and what dropout leaves of it, 16 bits each, and the mask of dropout
// (Korthikanti et al. 2022, section 4.1: 5 a s^2 b).
double bytes_of_scores(const Machine& machine, const config::Deck& layout,
                       double scores) {
  if (machine.software.attention == AttentionKind::fused) return 0.0;
  const double element = layout.precision.compute == config::Precision::fp32 ? 4.0 : 2.0;
  return (2.0 * element + 1.0) * as_double(layout.batch.micro) * scores /
         layout.parallel.tensor;
}

// Of so many layers of a chunk, those that are made again as a whole.
index_t full_layers(const config::Deck& layout, index_t layers) {
  if (layout.memory.recompute != Recompute::full) return 0;
  const index_t most = layout.memory.recompute_layers;
  return most == 0 ? layers : std::min(most, layers);
}
// Those whose scores are made again.
index_t again_layers(const config::Deck& layout, index_t layers) {
  return layout.memory.recompute == Recompute::selective ? layers
                                                         : full_layers(layout, layers);
}

// Bytes of scores that a stage keeps beside what its plan has: of blocks that are not
// made again, and for a while those of one that is.
double scores_of_stage(const Machine& machine, const config::Deck& deck,
                       const step::ModelPart& part, const step::MemoryPlan& plan) {
  const model::Blueprint& blueprint = part.blueprint;
  double kept = 0.0, most_again = 0.0;
  for (std::size_t chunk = 0; chunk < part.ranges.size(); ++chunk) {
    const model::BlockRange& range = part.ranges[chunk];
    const index_t again = again_layers(deck, blueprint.layers_in(range));
    index_t layer = 0;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const model::BlockSpec& block = blueprint.blocks[i];
      const double bytes =
          bytes_of_scores(machine, deck, block.attention_scores(blueprint.batch));
      if (block.is_layer && layer++ < again) {
        most_again = std::max(most_again, bytes);
      } else {
        kept += plan.workspace.slots.at(chunk) * bytes;
      }
    }
  }
  return kept + most_again;
}

LayoutMemory memory_of(const step::MemoryPlan& plan, double reserved) {
  const auto bytes = [](std::size_t count) { return static_cast<double>(count); };
  return {.weights = bytes(plan.weights),
          .gradients = bytes(plan.gradients),
          .optimizer = bytes(plan.optimizer),
          .activations = bytes(plan.saved() + plan.workspace.held_bytes()),
          .scratch = bytes(plan.workspace.scratch),
          .other = bytes(plan.batch + plan.buffers + plan.products + plan.generation),
          .reserved = reserved};
}

// The layers of a piece: the first of the model's, and the one behind the last.
using PieceLayers = std::pair<index_t, index_t>;
std::vector<PieceLayers> layers_of_pieces(const std::vector<index_t>& split) {
  std::vector<PieceLayers> pieces;
  index_t begin = 0;
  for (const index_t layers : split) {
    pieces.emplace_back(begin, begin + layers);
    begin += layers;
  }
  return pieces;
}

// The first of the stages whose chunks have as many layers of each class at the same
// places.
std::vector<int> stages_that_differ(const PipelineShape& shape, const LayerRuns& runs,
                                    const std::vector<PieceLayers>& pieces) {
  std::set<std::vector<std::pair<PieceKind, std::vector<index_t>>>> seen;
  std::vector<int> stages;
  for (int stage = 0; stage < shape.stages; ++stage) {
    std::vector<std::pair<PieceKind, std::vector<index_t>>> chunks;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      const int piece = shape.piece(stage, chunk);
      const auto& [begin, end] = pieces.at(extent(piece));
      chunks.emplace_back(runs.kind_of(piece, shape.pieces(), begin, end),
                          runs.counts(begin, end));
    }
    if (seen.insert(std::move(chunks)).second) stages.push_back(stage);
  }
  return stages;
}

// Of ZeRO, what is left of state that a rank alone would have.
struct Shares {
  double weights = 1.0, gradients = 1.0, optimizer = 1.0;
};
Shares shares_of(const config::Deck& layout, bool is_narrow) {
  const int zero = layout.parallel.zero;
  const double part = 1.0 / (layout.parallel.data * layout.parallel.context);
  const double master = zero == 3 || (zero >= 1 && is_narrow) ? part : 1.0;
  const double copy = zero == 3 ? part : 1.0;
  // Of a narrow type there are 4 bytes of master weights and 2 of a copy.
  return {.weights = is_narrow ? (2.0 * master + copy) / 3.0 : master,
          .gradients = zero >= 2 ? part : 1.0,
          .optimizer = zero >= 1 ? part : 1.0};
}

void add_state(const Work& work, double times, const Shares& shares,
               LayoutMemory& memory) {
  memory.weights += times * shares.weights * work.memory.weights;
  memory.gradients += times * shares.gradients * work.memory.gradients;
  memory.optimizer += times * shares.optimizer * work.memory.optimizer;
}

// Two units take turns where gradients (and weights) are whole for a pass; the words have
// room of their own.
double zero_buffers(const config::Deck& layout, double layer_elements,
                    double own_elements, bool is_narrow) {
  if (layout.parallel.zero < 2) return 0.0;
  const double gradient =
      layout.precision.gradients == config::Gradients::fp32 ? 4.0 : 2.0;
  const double weight = is_narrow ? 2.0 : 4.0;
  const double each = gradient + (layout.parallel.zero == 3 ? weight : 0.0);
  return each * (2.0 * layer_elements + own_elements);
}

MemoryModel::Slots find_slots(const PipelineShape& shape, PipelineSchedule kind,
                              int stage) {
  const schedule::OrderOf order_of = order_by_rule(shape, kind);
  const schedule::Order order = order_of(stage);
  MemoryModel::Slots slots{.saved = {}, .held = {}, .buffers = 0.0};
  if (shape.stages > 1) {
    slots.buffers = schedule::with_messages(shape, order_of, stage).buffers;
  }
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    slots.saved.push_back(schedule::slot_count(order, chunk));
    slots.held.push_back(schedule::held_count(order, chunk));
  }
  return slots;
}

// Of the longest message between stages, put together.
double border_bytes(Workloads& workloads, const config::Deck& layout) {
  if (layout.parallel.pipeline == 1) return 0.0;
  const int slices = layout.parallel.sequence ? 1 : layout.parallel.tensor;
  double most = 0.0;
  for (std::size_t r = 0; r < workloads.runs().runs().size(); ++r) {
    const Tally& around =
        workloads.chunk(workload_key(layout), LayerRuns::within(r)).around;
    const std::vector<MessageTally> messages = around.messages();
    const auto sent = std::ranges::find(messages, "send", &MessageTally::operation);
    if (sent == messages.end()) continue;
    most = std::max(most, as_double(sent->bytes) / as_double(sent->calls) * slices);
  }
  return most;
}

// Of what a stage has for one layer at a time, that of its largest.
struct LargestLayer {
  double scratch = 0.0, scores = 0.0, elements = 0.0;

  void add(const Work& layer, double scores_of_layer) {
    scratch = std::max(scratch, layer.memory.scratch);
    scores = std::max(scores, scores_of_layer);
    elements = std::max(elements, layer.elements);
  }
};

}  // namespace

// What layouts of the same kind have in common.
struct MemoryModel::Kind {
  const Machine& machine;
  Workloads& workloads;
  const config::Deck& layout;
  std::vector<PieceLayers> pieces;
  std::vector<std::size_t> cuts;  // blocks where the pieces begin and end
};

MemoryModel::MemoryModel(const config::Deck& deck)
    : products_(static_cast<double>(bytes_of_products(deck))) {
  const model::Blueprint blueprint = model::make_blueprint(deck.model);
  const LayerRuns runs(blueprint);
  for (std::size_t c = 0; c < runs.classes(); ++c) {
    const model::BlockSpec& layer = blueprint.blocks[runs.first_block(c)];
    layer_scores_.push_back(layer.attention_scores(blueprint.batch));
  }
  for (const model::BlockSpec& block : blueprint.blocks) {
    is_layer_.push_back(block.is_layer);
  }
  for (const model::SharedTable& table : blueprint.tables) {
    tables_.push_back({as_double(table.elements()), blueprint.users(table)});
  }
}

// Elements, without padding, of the tables that a chunk shares with one before it on the
// stage, which has them: the words of a T5's decoder and of its head, for example.
double MemoryModel::elements_of_others(const Kind& kind, int stage, int chunk) const {
  const PipelineShape shape = pipeline_shape(kind.layout);
  const auto uses = [&](const Table& table, int by) {
    const std::size_t piece = extent(shape.piece(stage, by));
    const auto first = std::ranges::lower_bound(table.users, kind.cuts[piece]);
    return first != table.users.end() && *first < kind.cuts[piece + 1];
  };
  double elements = 0.0;
  for (const Table& table : tables_) {
    bool is_there = false;
    for (int before = 0; before < chunk; ++before) {
      is_there = is_there || uses(table, before);
    }
    if (is_there && uses(table, chunk)) elements += table.elements;
  }
  return elements / kind.layout.parallel.tensor;
}

// A step of more micro-batches than these repeats itself in its middle, but for one that
// has them all in flight.
auto MemoryModel::slots_of(const config::Deck& layout, int stage) -> const Slots& {
  constexpr int kEnough = 4;
  PipelineShape shape = pipeline_shape(layout);
  const int enough = kEnough * shape.stages;
  const bool repeats = layout.parallel.schedule != PipelineSchedule::gpipe;
  if (repeats && shape.microbatches > enough) {
    shape.microbatches = enough + shape.microbatches % shape.stages;
  }
  const SlotsKey key{shape.stages, shape.chunks, shape.microbatches, stage,
                     layout.parallel.schedule};
  const auto found = slots_.find(key);
  if (found != slots_.end()) return found->second;
  return slots_.emplace(key, find_slots(shape, layout.parallel.schedule, stage))
      .first->second;
}

LayoutMemory MemoryModel::stage_memory(const Kind& kind, int stage) {
  const auto& [machine, workloads, layout, pieces, cuts] = kind;
  const PipelineShape shape = pipeline_shape(layout);
  const Workloads::Key key = workload_key(layout);
  const LayerRuns& runs = workloads.runs();
  const bool is_narrow = layout.precision.compute != config::Precision::fp32;
  const Shares shares = shares_of(layout, is_narrow);
  LayoutMemory memory{.scratch = 0.0, .reserved = machine.device.reserved};
  const Slots& slots = slots_of(layout, stage);
  double most_held = 0.0, own_elements = 0.0;
  LargestLayer largest;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int piece = shape.piece(stage, chunk);
    const auto& [begin, end] = pieces.at(extent(piece));
    const Work& own =
        workloads.chunk(key, runs.kind_of(piece, shape.pieces(), begin, end)).own;
    double saved = 0.0, held = own.memory.held;
    const auto add = [&](const Work& work, double times) {
      add_state(work, times, shares, memory);
      saved += times * work.memory.saved;
    };
    const double of_others = elements_of_others(kind, stage, chunk);
    add(own, 1.0);
    if (of_others > 0.0) add_state(own, -of_others / own.elements, shares, memory);
    const std::vector<index_t> layers = runs.counts(begin, end);
    const auto first = [&](index_t count) { return runs.counts(begin, begin + count); };
    const std::vector<index_t> full = first(full_layers(layout, end - begin)),
                               again = first(again_layers(layout, end - begin));
    const bool are_full = layout.memory.recompute == Recompute::full;
    for (std::size_t c = 0; c < runs.classes(); ++c) {
      if (layers[c] == 0) continue;
      const Work& layer = workloads.layer(key, c);
      const double scores = bytes_of_scores(machine, layout, layer_scores_[c]);
      const index_t plain = are_full ? layers[c] - full[c] : index_t{0};
      saved += as_double(layers[c] - again[c]) * scores;
      add(layer, as_double(layers[c] - plain));
      add(workloads.layer(plain_key(key), c), as_double(plain));
      held += as_double(layers[c]) * layer.memory.held;
      largest.add(layer, scores);
    }
    most_held = std::max(most_held, held);
    memory.activations += slots.saved[extent(chunk)] * saved;
    memory.activations += slots.held[extent(chunk)] * held;
    memory.scratch = std::max(memory.scratch, own.memory.scratch);
    memory.other = std::max(memory.other, own.memory.other);
    own_elements += own.elements - of_others;
  }
  memory.activations += most_held;  // of the pass that is under way
  memory.scratch += largest.scratch;
  if (layout.memory.recompute != Recompute::none) memory.scratch += largest.scores;
  memory.other += products_;
  memory.other += slots.buffers * border_bytes(workloads, layout);
  memory.other += zero_buffers(layout, largest.elements, own_elements, is_narrow);
  return memory;
}

LayoutMemory MemoryModel::of(const Machine& machine, Workloads& workloads,
                             const config::Deck& layout,
                             const std::vector<index_t>& split) {
  const Kind kind{machine, workloads, layout, layers_of_pieces(split),
                  schedule::cuts_of({split.begin(), split.end()}, is_layer_)};
  LayoutMemory most;
  for (const int stage :
       stages_that_differ(pipeline_shape(layout), workloads.runs(), kind.pieces)) {
    const LayoutMemory memory = stage_memory(kind, stage);
    if (memory.total() > most.total()) most = memory;
  }
  return most;
}

LayoutMemory planned_memory(const Machine& machine, const config::Deck& deck) {
  const step::Sharing shared = step::sharing(deck);
  const step::StepShape shape = step::step_shape(deck);
  const model::Blueprint blueprint = model::make_blueprint(deck.model);
  const step::PipelinePlans plans(shared.pipeline, blueprint, shape);
  const std::vector<index_t> split(shared.pipeline.split.begin(),
                                   shared.pipeline.split.end());
  LayoutMemory most;
  for (const int stage : stages_that_differ(pipeline_shape(deck), LayerRuns(blueprint),
                                            layers_of_pieces(split))) {
    const auto replica =
        step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
    const step::MemoryPlan plan =
        with_all_else(replica->plan_step(shape, plans).memory, *replica, deck);
    LayoutMemory memory = memory_of(plan, machine.device.reserved);
    memory.activations += scores_of_stage(machine, deck, replica->part(), plan);
    if (memory.total() > most.total()) most = memory;
  }
  return most;
}

}  // namespace trireme::plan

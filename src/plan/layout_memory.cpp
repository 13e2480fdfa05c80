// plan/layout_memory.cpp — see layout_memory.hpp.
//
// Only the first and the last stage are looked at: the first has most micro-batches in
// flight and the embedding, the last the head; those between have less.
#include "plan/layout_memory.hpp"

#include <algorithm>

#include "schedule/pipeline.hpp"

namespace trireme::plan {

namespace {

using config::PipelineSchedule;
using config::Recompute;
using schedule::PipelineShape;

// The most (micro-batch, chunk) pairs that a stage has in flight.
double in_flight(const config::Deck& layout, int stage) {
  const PipelineShape shape = pipeline_shape(layout);
  if (layout.parallel.schedule == PipelineSchedule::gpipe) {
    return shape.microbatches * shape.chunks;
  }
  // Weight passes come later by as much as a stage has fewer forward passes ahead.
  const bool is_zero_bubble = layout.parallel.schedule == PipelineSchedule::zero_bubble;
  return schedule::most_in_flight(shape, is_zero_bubble ? 0 : stage,
                                  schedule::most_groups(shape));
}

// Those of them whose weight passes are still to come.
double held(const config::Deck& layout, int stage) {
  if (layout.parallel.schedule != PipelineSchedule::zero_bubble) return 1.0;
  const PipelineShape shape = pipeline_shape(layout);
  const int groups = schedule::most_groups(shape);
  return 1.0 + schedule::most_in_flight(shape, 0, groups) -
         schedule::most_in_flight(shape, stage, groups);
}

// Scores of attention that are written to memory: softmax and what dropout leaves of it,
// 16 bits each, and the mask of dropout (Korthikanti et al. 2022, section 4.1: 5 a s^2
// b).
double scores_of_layer(const Machine& machine, const config::Deck& layout) {
  if (machine.software.attention == AttentionKind::fused) return 0.0;
  const config::ModelConfig& model = layout.model;
  const double element = layout.precision.compute == config::Precision::fp32 ? 4.0 : 2.0;
  return (2.0 * element + 1.0) * as_double(layout.batch.micro * model.heads) *
         as_double(model.sequence) * as_double(model.sequence) / layout.parallel.tensor;
}

// Of ZeRO, what is left of state that `own` bytes are of.
struct Shares {
  double state = 1.0, gradients = 1.0, master = 1.0, copy = 1.0;
};
Shares shares_of(const config::Deck& layout, bool is_narrow) {
  const int zero = layout.parallel.zero;
  const double part = 1.0 / (layout.parallel.data * layout.parallel.context);
  return {.state = zero >= 1 ? part : 1.0,
          .gradients = zero >= 2 ? part : 1.0,
          .master = zero == 3 || (zero >= 1 && is_narrow) ? part : 1.0,
          .copy = zero == 3 ? part : 1.0};
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

// What layouts of the same kind have in common; `plain_layer`: one that is not made
// again.
struct Kind {
  const Machine& machine;
  const Workload& workload;
  const Work& plain_layer;
  const config::Deck& layout;
  const std::vector<index_t>& split;
};

LayoutMemory stage_memory(const Kind& kind, int stage) {
  const auto& [machine, workload, plain_layer, layout, split] = kind;
  const PipelineShape shape = pipeline_shape(layout);
  const bool is_narrow = layout.precision.compute != config::Precision::fp32;
  const Shares shares = shares_of(layout, is_narrow);
  // Of a narrow type there are 4 bytes of master weights and 2 of a copy.
  const double kept =
      is_narrow ? (2.0 * shares.master + shares.copy) / 3.0 : shares.master;
  const double scores = scores_of_layer(machine, layout);
  const bool keeps_scores = layout.memory.recompute == Recompute::none;
  LayoutMemory memory{.scratch = 0.0, .reserved = machine.device.reserved};
  double saved = 0.0, held_bytes = 0.0, own_elements = 0.0;
  const auto add = [&](const Work& work, double times) {
    memory.weights += times * kept * work.memory.weights;
    memory.gradients += times * shares.gradients * work.memory.gradients;
    memory.optimizer += times * shares.state * work.memory.optimizer;
    saved += times * work.memory.saved;
  };
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int piece = shape.piece(stage, chunk);
    const Work& own = workload.chunk(place_of(shape, piece)).own;
    const index_t layers = split.at(extent(piece));
    const index_t most = layout.memory.recompute_layers;
    const index_t plain = most == 0 ? 0 : std::max<index_t>(layers - most, 0);
    add(own, 1.0);
    add(workload.layer, as_double(layers - plain));
    add(plain_layer, as_double(plain));
    if (keeps_scores) saved += as_double(layers) * scores;
    held_bytes = std::max(
        held_bytes, own.memory.held + as_double(layers) * workload.layer.memory.held);
    memory.scratch = std::max(memory.scratch, own.memory.scratch);
    memory.other = std::max(memory.other, own.memory.other);
    own_elements += own.elements;
  }
  memory.scratch += workload.layer.memory.scratch + (keeps_scores ? 0.0 : scores);
  memory.activations =
      in_flight(layout, stage) * saved / shape.chunks + held(layout, stage) * held_bytes;
  memory.other += zero_buffers(layout, workload.layer.elements, own_elements, is_narrow);
  return memory;
}

}  // namespace

LayoutMemory layout_memory(const Machine& machine, Workloads& workloads,
                           const config::Deck& layout,
                           const std::vector<index_t>& split) {
  const Workloads::Key key = workload_key(layout);
  const Workloads::Key plain = plain_key(key);
  const Workload& workload = workloads.of(key);
  const Kind kind{machine, workload, workloads.of(plain).layer, layout, split};
  const LayoutMemory first = stage_memory(kind, 0);
  if (layout.parallel.pipeline == 1) return first;
  const LayoutMemory last = stage_memory(kind, layout.parallel.pipeline - 1);
  return first.total() >= last.total() ? first : last;
}

}  // namespace trireme::plan

// plan/performance_model.cpp — see performance_model.hpp.
//
// The seconds of a layer of each class and of what stands round the layers are found once
// for each kind of layout (Key); a stage is a sum of these. So that a search can ask for
// thousands of layouts the pipeline's time can be estimated: m micro-batches through the
// slowest stage, and a bubble of one chunk's forward and backward pass of each other
// stage (Narayanan et al. 2021, 2.2), of a forward pass and the input gradients less the
// weight gradients where these have passes of their own (Qi et al. 2023).
#include "plan/performance_model.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "model/blueprint.hpp"
#include "plan/counts.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "step/pipeline.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::plan {

namespace {

using config::PipelineSchedule;
using config::Recompute;
using schedule::PieceCost;
using schedule::PipelineShape;

// Master weights and both moments, in fp32: what a checkpoint has of a parameter.
constexpr double kCheckpointBytes = 12.0;
// Of a pipeline that is simulated: some tenths of a second, some hundred megabytes.
constexpr double kMostPasses = 4e6;

// How far apart neighbours on an axis are in the numbering of ranks.
int stride_of(const config::ParallelConfig& parallel, config::Axis axis) {
  int stride = 1;
  for (const config::Axis inner : parallel.order) {
    if (inner == axis) break;
    switch (inner) {
      case config::Axis::tensor:
        stride *= parallel.tensor;
        break;
      case config::Axis::context:
        stride *= parallel.context;
        break;
      case config::Axis::data:
        stride *= parallel.data;
        break;
      case config::Axis::pipeline:
        stride *= parallel.pipeline;
        break;
    }
  }
  return stride;
}

PieceCost sum_of(const PieceCost& a, const PieceCost& b, double times) {
  return {a.forward + times * b.forward, a.backward_input + times * b.backward_input,
          a.backward_weight + times * b.backward_weight};
}

void add(TallySeconds& to, const TallySeconds& more, double times) {
  to.products += times * more.products;
  to.attention += times * more.attention;
  to.rows += times * more.rows;
  to.attention_forward += times * more.attention_forward;
  to.tensor_messages += times * more.tensor_messages;
  to.stage_messages += times * more.stage_messages;
  to.other_messages += times * more.other_messages;
}

// The machine for what a step has once.
Machine while_updating(Machine machine) {
  machine.device.row_share = machine.device.update_share;
  return machine;
}

// Of a layer with several, the one that has most scores.
AttentionShape attention_of(const model::BlockSpec& layer, const BatchSpec& batch,
                            const config::Deck& deck) {
  AttentionShape shape{.sequence = deck.model.sequence,
                       .head_elements = deck.model.head_elements(),
                       .type = step::compute_type(deck)};
  const auto most = std::ranges::max_element(
      layer.attention, {},
      [&](const model::AttentionSpec& of) { return of.scores(batch); });
  if (most == layer.attention.end()) return shape;
  shape.sequence = batch.streams.at(extent(most->keys)).sequence;
  shape.head_elements = most->head_size;
  return shape;
}

// Of so many layers of a chunk, those of which the backward pass makes something again:
// the first ones.
index_t layers_made_again(const config::Deck& layout, index_t layers) {
  if (layout.memory.recompute == Recompute::none) return 0;
  if (layout.memory.recompute == Recompute::selective) return layers;
  const index_t most = layout.memory.recompute_layers;
  return most == 0 ? layers : std::min(most, layers);
}

// What a run of the deck chooses, by what it takes passes to cost.
schedule::OrderOf run_order(const config::Deck& layout) {
  const std::vector<index_t> split = split_of(layout);
  const step::PipelineLayout pipeline{.stages = layout.parallel.pipeline,
                                      .chunks = layout.parallel.virtual_pipeline,
                                      .split = {split.begin(), split.end()},
                                      .schedule = layout.parallel.schedule};
  const schedule::Costs costs = step::modelled_costs(
      pipeline, model::make_blueprint(layout.model), step::step_shape(layout));
  return schedule::choose_orders(pipeline_shape(layout), layout.parallel.schedule, costs)
      .order_of;
}

}  // namespace

double StepParts::total() const {
  return compute + recompute + tensor_messages + stage_messages + bubble + data_messages +
         optimizer + checkpoint + other;
}

Places places_of(const config::Deck& layout) {
  const config::ParallelConfig& p = layout.parallel;
  const int all = p.ranks(), to_next_stage = stride_of(p, config::Axis::pipeline);
  const int to_last_stage = to_next_stage * std::max(p.pipeline - 1, 1);
  return {.tensor = {p.tensor, stride_of(p, config::Axis::tensor), all},
          .gradient = {p.data * p.context, stride_of(p, config::Axis::data), all},
          .model = {p.tensor * p.pipeline, stride_of(p, config::Axis::tensor), all},
          .tied = {std::min(p.pipeline, 2), to_last_stage, all},
          .pipeline = {p.pipeline, to_next_stage, all}};
}

bool is_simulated(const config::Deck& layout, Schedule schedule) {
  const PipelineShape shape = pipeline_shape(layout);
  if (shape.stages == 1) return true;
  if (schedule == Schedule::of_run) {
    return schedule::is_simulated(shape, layout.parallel.schedule);
  }
  return schedule == Schedule::by_rule &&
         2.0 * shape.pieces() * shape.microbatches <= kMostPasses;
}

std::vector<index_t> split_of(const config::Deck& layout) {
  const config::ParallelConfig& p = layout.parallel;
  if (!p.stages.empty()) return p.stages;
  const schedule::Split even = schedule::even_split(
      static_cast<int>(layout.model.total_layers()), p.pipeline * p.virtual_pipeline);
  return {even.begin(), even.end()};
}

PerformanceModel::PerformanceModel(Machine machine, const config::Deck& deck)
    : machine_(machine),
      updating_(while_updating(std::move(machine))),
      deck_(deck),
      workloads_(deck),
      memory_model_(deck) {
  const model::Blueprint blueprint = model::make_blueprint(deck.model);
  model_flops_ = blueprint.model_flops();
  parameters_ = as_double(blueprint.parameter_count());
  for (const model::BlockSpec& block : blueprint.blocks) {
    if (block.is_layer) attention_forward_ += block.attention_flops(blueprint.batch);
  }
  for (std::size_t c = 0; c < workloads_.runs().classes(); ++c) {
    const model::BlockSpec& layer = blueprint.blocks[workloads_.runs().first_block(c)];
    layer_forward_.push_back(layer.forward_flops(blueprint.batch));
    attention_.push_back(attention_of(layer, blueprint.batch, deck));
  }
}

void PerformanceModel::set_machine(Machine machine) {
  updating_ = while_updating(machine);
  machine_ = std::move(machine);
  known_.clear();
}

auto PerformanceModel::work_seconds(const Work& work, const Places& places,
                                    const AttentionShape& attention) const
    -> WorkSeconds {
  const auto of = [&](const Tally& tally) {
    return tally_seconds(machine_, places, attention, tally);
  };
  return {of(work.passes.forward), of(work.passes.backward),
          of(work.passes.backward_weight),
          tally_seconds(updating_, places, attention, work.step)};
}

// Borders may differ: where pieces meet within a run the longest message of all runs
// counts, as messages go from stage to stage together.
void PerformanceModel::find_messages(const config::Deck& layout, LayoutSeconds& seconds) {
  constexpr double kMessagesOfChunk = 2.0;  // its output, and the gradient of its input
  const Workloads::Key key = workload_key(layout);
  const LayerRuns& runs = workloads_.runs();
  for (std::size_t r = 0; r < runs.runs().size(); ++r) {
    const PieceKind kind = key.has_stages ? LayerRuns::within(r) : runs.whole();
    const TallySeconds around =
        tally_seconds(machine_, places_of(layout), attention_.front(),
                      workloads_.chunk(key, kind).around);
    seconds.stage_message =
        std::max(seconds.stage_message, around.stage_messages / kMessagesOfChunk);
    seconds.around = std::max(seconds.around, around.kernels());
    if (!key.has_stages) return;
  }
}

auto PerformanceModel::seconds_of(const config::Deck& layout) -> LayoutSeconds& {
  const Places places = places_of(layout);
  const Key key{.workload = workload_key(layout),
                .tensor_stride = places.tensor.stride,
                .stage_stride = places.pipeline.stride,
                .stages = layout.parallel.pipeline,
                .devices = layout.parallel.ranks()};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  LayoutSeconds seconds;
  for (std::size_t c = 0; c < workloads_.runs().classes(); ++c) {
    const auto of = [&](const Workloads::Key& which) {
      return work_seconds(workloads_.layer(which, c), places, attention_[c]);
    };
    LayerSeconds& layer = seconds.layers.emplace_back();
    layer.layer = of(key.workload);
    layer.plain = of(plain_key(key.workload));
    layer.elements = workloads_.layer(key.workload, c).elements;
    // Scores that are not kept are made again.
    if (machine_.software.attention == AttentionKind::materialised &&
        layout.memory.recompute == Recompute::selective) {
      layer.layer.backward.attention += layer.layer.forward.attention_forward;
    }
  }
  find_messages(layout, seconds);
  return known_.emplace(key, std::move(seconds)).first->second;
}

double PerformanceModel::visible(const TallySeconds& seconds) const {
  return seconds.kernels() +
         (1.0 - machine_.software.tensor_overlap) * seconds.tensor_messages;
}

PieceCost PerformanceModel::cost_of(const WorkSeconds& work) const {
  return {visible(work.forward), visible(work.backward), visible(work.backward_weight)};
}

// `recomputed`: seconds of each that are its forward pass once more.
void PerformanceModel::add_layers(Stage& stage, PieceCost& cost, const WorkSeconds& layer,
                                  index_t count, double recomputed) const {
  const double times = as_double(count);
  cost = sum_of(cost, cost_of(layer), times);
  add(stage.step, layer.step, times);
  for (const TallySeconds* pass :
       {&layer.forward, &layer.backward, &layer.backward_weight}) {
    add(stage.work, *pass, times);
    stage.parts.compute += times * pass->kernels();
    stage.parts.tensor_messages += times * (visible(*pass) - pass->kernels());
  }
  stage.parts.compute -= times * recomputed;
  stage.parts.recompute += times * recomputed;
}

auto PerformanceModel::chunk_of(const config::Deck& layout, LayoutSeconds& seconds,
                                const PieceKind& kind) -> const ChunkSeconds& {
  const auto [found, is_new] = seconds.chunks.try_emplace(kind);
  if (is_new) {
    const Work& own = workloads_.chunk(workload_key(layout), kind).own;
    found->second = {work_seconds(own, places_of(layout), attention_.front()),
                     own.elements};
  }
  return found->second;
}

// Layers [begin, end) of the model.
void PerformanceModel::add_chunk(Stage& stage, const config::Deck& layout,
                                 LayoutSeconds& seconds, int piece, index_t begin,
                                 index_t end) {
  const PipelineShape shape = pipeline_shape(layout);
  const LayerRuns& runs = workloads_.runs();
  const ChunkSeconds& chunk =
      chunk_of(layout, seconds, runs.kind_of(piece, shape.pieces(), begin, end));
  PieceCost cost{0.0, 0.0, 0.0};
  add_layers(stage, cost, chunk.own, 1, 0.0);
  const std::vector<index_t> all = runs.counts(begin, end);
  const std::vector<index_t> again =
      runs.counts(begin, begin + layers_made_again(layout, end - begin));
  for (std::size_t c = 0; c < runs.classes(); ++c) {
    if (all[c] == 0) continue;
    const auto& [layer, plain, elements] = seconds.layers[c];
    const double recomputed = layout.memory.recompute == Recompute::selective
                                  ? layer.backward.kernels() - plain.backward.kernels()
                                  : plain.forward.kernels();
    add_layers(stage, cost, layer, again[c], recomputed);
    add_layers(stage, cost, plain, all[c] - again[c], 0.0);
    stage.layer_elements += as_double(all[c]) * elements;
  }
  const double slot = machine_.software.microbatch_seconds / shape.chunks;
  cost.forward += seconds.around + 0.5 * slot;
  cost.backward_input += 0.5 * slot;
  stage.parts.compute += seconds.around;
  stage.parts.other += slot;
  const int borders = (piece > 0 ? 1 : 0) + (piece + 1 < shape.pieces() ? 1 : 0);
  if (machine_.software.stage_messages == StageMessages::waited_for && shape.stages > 1) {
    stage.parts.stage_messages += borders * seconds.stage_message;
  }
  stage.own_elements += chunk.elements;
  stage.layers += end - begin;
  stage.chunks.push_back(cost);
}

auto PerformanceModel::stages_of(const config::Deck& layout) -> std::vector<Stage> {
  const PipelineShape shape = pipeline_shape(layout);
  LayoutSeconds& seconds = seconds_of(layout);
  const std::vector<index_t> split = split_of(layout);
  std::vector<Stage> stages(extent(shape.stages));
  index_t begin = 0;
  for (int piece = 0; piece < shape.pieces(); ++piece) {
    const index_t end = begin + split.at(extent(piece));
    add_chunk(stages[extent(shape.stage_of(piece))], layout, seconds, piece, begin, end);
    begin = end;
  }
  return stages;
}

// A micro-batch comes back to a stage for its next chunk when it has passed all stages:
// with few micro-batches that takes longer than what the slowest stage does meanwhile.
// Weight gradients with passes of their own are on no other stage's way, and fill the
// bubble as long as there are some.
double PerformanceModel::estimated_seconds(const config::Deck& layout,
                                           const std::vector<Stage>& stages,
                                           double stage_message) const {
  const PipelineShape shape = pipeline_shape(layout);
  const double chunks = shape.chunks, m = shape.microbatches;
  const bool waits = machine_.software.stage_messages == StageMessages::waited_for;
  const bool is_split = layout.parallel.schedule == PipelineSchedule::zero_bubble;
  const double filled = std::min(1.0, (m - 1.0) / (shape.stages - 1.0));
  const Stage& slowest = *std::ranges::max_element(
      stages, {}, [](const Stage& stage) { return stage.passes(); });
  double bubble = 0.0, once_through = 0.0;
  for (const Stage& stage : stages) {
    double weight = 0.0;
    for (const PieceCost& chunk : stage.chunks) weight += chunk.backward_weight;
    if (!is_split) weight = 0.0;
    const double way = (stage.passes() - weight) / chunks + 2.0 * stage_message;
    once_through += way;
    if (&stage != &slowest) bubble += way - filled * weight / chunks;
  }
  double each = slowest.passes();
  if (shape.chunks == 1 && !waits) each += stage_message;
  const double round = m * each / chunks;
  return (chunks - 1.0) * std::max(round, once_through) + round + std::max(bubble, 0.0);
}

double PerformanceModel::simulated_seconds(const config::Deck& layout,
                                           const std::vector<Stage>& stages,
                                           double stage_message,
                                           const schedule::OrderOf& order_of) const {
  const PipelineShape shape = pipeline_shape(layout);
  const bool waits = machine_.software.stage_messages == StageMessages::waited_for;
  schedule::Costs costs{.pieces = {},
                        .message = waits ? 0.0 : stage_message,
                        .message_work = waits ? 0.5 * stage_message : 0.0};
  for (int piece = 0; piece < shape.pieces(); ++piece) {
    costs.pieces.push_back(
        stages[extent(shape.stage_of(piece))].chunks[extent(shape.chunk_of(piece))]);
  }
  const std::vector<schedule::Order> orders = schedule::orders_of_all(shape, order_of);
  return schedule::simulate(shape, orders, costs).seconds;
}

double PerformanceModel::pipeline_seconds(const config::Deck& layout,
                                          const std::vector<Stage>& stages,
                                          Schedule schedule) {
  const double message = seconds_of(layout).stage_message;
  if (schedule == Schedule::estimated) return estimated_seconds(layout, stages, message);
  const schedule::OrderOf order_of =
      schedule == Schedule::of_run
          ? run_order(layout)
          : order_by_rule(pipeline_shape(layout), layout.parallel.schedule);
  return simulated_seconds(layout, stages, message, order_of);
}

// docs/math/communication.md, "Gradient group": with ZeRO 2 and 3 gradients are sent in
// each micro-batch, with ZeRO 3 weights of layers are gathered for each pass.
double PerformanceModel::data_seconds(const config::Deck& layout,
                                      const Stage& stage) const {
  const int zero = layout.parallel.zero;
  const GroupPlace group = places_of(layout).gradient;
  const double m = as_double(layout.microbatches());
  const bool is_narrow = layout.precision.compute != config::Precision::fp32;
  double gradient = machine_.software.gradient_bytes;
  if (gradient == 0.0) {
    gradient = layout.precision.gradients == config::Gradients::fp32 ? 4.0 : 2.0;
  }
  const double weight = is_narrow ? 2.0 : 4.0;
  const double calls = as_double(stage.layers + 1);
  const double elements = stage.own_elements + stage.layer_elements;
  const auto seconds = [&](Collective operation, double bytes, double times) {
    return collective_seconds(machine_, group, operation, bytes, times * calls);
  };
  double all = 0.0;
  if (zero == 0) {
    all = seconds(Collective::all_reduce, gradient * elements, 1.0);
  } else {
    const double sums = zero == 1 ? 1.0 : m, passes = zero == 3 ? 2.0 * m : 1.0;
    const double gathered = stage.own_elements + passes * stage.layer_elements;
    all = seconds(Collective::reduce_scatter, sums * gradient * elements, sums) +
          seconds(Collective::all_gather, weight * gathered, passes);
    if (zero == 3) all /= machine_.software.zero3_share;
  }
  return (1.0 - machine_.software.data_overlap) * all;
}

double PerformanceModel::hardware_flops(const config::Deck& layout) const {
  double flops = model_flops_;
  if (layout.memory.recompute == Recompute::full) {
    index_t begin = 0;
    for (const index_t layers : split_of(layout)) {
      const std::vector<index_t> again =
          workloads_.runs().counts(begin, begin + layers_made_again(layout, layers));
      for (std::size_t c = 0; c < again.size(); ++c) {
        flops += as_double(again[c]) * layer_forward_[c];
      }
      begin += layers;
    }
  } else if (layout.memory.recompute == Recompute::selective &&
             machine_.software.attention == AttentionKind::materialised) {
    flops += attention_forward_;
  }
  return flops;
}

StepKernels PerformanceModel::step_kernels(const config::Deck& layout) {
  const std::vector<Stage> stages = stages_of(layout);
  const double m = as_double(layout.microbatches());
  const double share = 1.0 / as_double(static_cast<index_t>(stages.size()));
  const double part =
      layout.parallel.zero >= 1 ? share / places_of(layout).gradient.ranks : share;
  StepKernels kernels;
  for (const Stage& stage : stages) {
    add(kernels.passes, stage.work, m * share);
    add(kernels.update, stage.step, part);
    kernels.data_messages += share * data_seconds(layout, stage);
  }
  kernels.tensor_messages =
      (1.0 - machine_.software.tensor_overlap) * kernels.passes.tensor_messages;
  return kernels;
}

LayoutMemory PerformanceModel::memory(const config::Deck& layout) {
  return memory_model_.of(machine_, workloads_, layout, split_of(layout));
}

// A step's share. The one at the end of a run, all there is where `every` is 0, is no
// part of its steps.
double PerformanceModel::checkpoint_seconds(
    const config::CheckpointConfig& checkpoint) const {
  const bool is_waited_for = !checkpoint.async && checkpoint.every.steps > 0;
  if (!is_waited_for || machine_.storage_bandwidth <= 0.0) return 0.0;
  return kCheckpointBytes * parameters_ / machine_.storage_bandwidth /
         as_double(checkpoint.every.steps);
}

Prediction PerformanceModel::predict(const config::Deck& layout, Schedule schedule) {
  const std::vector<Stage> stages = stages_of(layout);
  const double m = as_double(layout.microbatches());
  const double samples = as_double(layout.batch.global);
  const Stage& slowest = *std::ranges::max_element(
      stages, {}, [](const Stage& stage) { return stage.passes(); });
  Prediction result{.parts = {},
                    .model_flops = samples * model_flops_,
                    .hardware_flops = samples * hardware_flops(layout),
                    .devices = layout.parallel.ranks()};
  StepParts& parts = result.parts;
  parts.compute = m * slowest.parts.compute;
  parts.recompute = m * slowest.parts.recompute;
  parts.tensor_messages = m * slowest.parts.tensor_messages;
  parts.stage_messages = m * slowest.parts.stage_messages;
  result.schedule = is_simulated(layout, schedule) ? schedule : Schedule::estimated;
  if (layout.parallel.pipeline > 1) {
    parts.bubble =
        pipeline_seconds(layout, stages, result.schedule) - m * slowest.passes();
  }
  parts.other = m * slowest.parts.other + machine_.software.step_seconds;
  const double shared =
      layout.parallel.zero >= 1 ? 1.0 / places_of(layout).gradient.ranks : 1.0;
  for (const Stage& stage : stages) {
    parts.data_messages =
        std::max(parts.data_messages,
                 data_seconds(layout, stage) + shared * stage.step.messages());
    parts.optimizer = std::max(parts.optimizer, shared * stage.step.kernels());
  }
  parts.checkpoint = checkpoint_seconds(layout.checkpoint);
  return result;
}

}  // namespace trireme::plan

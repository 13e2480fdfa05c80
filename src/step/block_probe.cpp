// step/block_probe.cpp — see block_probe.hpp.
//
// A probe makes one block by itself, as a chunk of its own with parameters, a slot and
// borders, and runs its passes a few times; blocks that are alike share one probe. Memory
// is that of one block at a time, and is given back before the model takes its own. The
// first round touches that memory and lets libraries choose their kernels, so that it
// does not count; of the others the shortest does, because what disturbs a pass on a
// shared machine only makes it longer.
#include "step/block_probe.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/ranges.h>

#include "base/exec.hpp"
#include "comm/communicator.hpp"
#include "kernels/initialize.hpp"
#include "model/chunk.hpp"
#include "nn/context.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"
#include "tensor/arena.hpp"

namespace trireme::step {

namespace {

using schedule::PieceCost;

template <class T>
class BlockProbe {
 public:
  BlockProbe(const ModelPart& part, std::size_t block, const config::Deck& deck)
      : chunk_(nn::Builder<T>{registry_, params_, part.groups}, part.blueprint,
               {block, block + 1}),
        weight_pass_(deck.parallel.schedule == config::PipelineSchedule::zero_bubble
                         ? model::WeightPass::later
                         : model::WeightPass::now),
        context_{
            .exec = exec_,
            .groups = part.groups,
            .step = kernels::StepStateView(state_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = step_shape(deck).micro_batch(part.blueprint.batch),
            .totals = totals_,
            .sequence_parallel = deck.parallel.sequence && part.groups.tensor->size() > 1,
            .recompute = {.selective = step_shape(deck).recompute.selective},
            .attention = step_shape(deck).attention} {
    allocate(part.blueprint, make_exec(deck));
  }

  // The shortest of several rounds on this rank.
  PieceCost shortest() {
    run();
    constexpr int kRounds = 5;
    constexpr double kNever = std::numeric_limits<double>::infinity();
    PieceCost least{kNever, kNever, kNever};
    for (int round = 0; round < kRounds; ++round) {
      const PieceCost cost = run();
      least = {std::min(least.forward, cost.forward),
               std::min(least.backward_input, cost.backward_input),
               std::min(least.backward_weight, cost.backward_weight)};
    }
    return least;
  }

 private:
  // Arenas as large as a pass on shapes alone says.
  void allocate(const model::Blueprint& blueprint, const Exec& device) {
    exec_ = Exec::shape_only();
    run();
    exec_ = device;
    memory_ =
        DeviceArray<std::byte>("probe", saved_.peak() + scratch_.peak() + held_.peak());
    std::byte* at = memory_.data();
    for (Arena* arena : {&saved_, &scratch_, &held_}) {
      const std::size_t bytes = arena->peak();
      *arena = Arena(at, bytes);
      at += bytes;
    }
    fill_batch(blueprint);
    in_ = DeviceArray<T>("probe's border", elements(chunk_.border_in()));
    d_in_ = DeviceArray<T>("probe's border", elements(chunk_.border_in()));
    out_ = DeviceArray<T>("probe's border", elements(chunk_.border_out()));
    d_out_ = DeviceArray<T>("probe's border", elements(chunk_.border_out()));
    params_.allocate(registry_, ParamBuffer<T>::Use::training);
    params_.initialize(exec_, 0);
    params_.refresh_compute(exec_);
  }

  // All positions count. Rows of the block's table are looked up all over, as in a text,
  // and few of them twice; the fields of positions go from 0 on.
  void fill_batch(const model::Blueprint& blueprint) {
    const std::vector<std::size_t> fields = blueprint.fields_of(chunk_.range());
    index_t most = 0;
    for (const std::size_t field : fields) {
      most = std::max(most, context_.batch.elements(field));
    }
    ids_ = DeviceArray<std::int32_t>("probe's ids", extent(most));
    positions_ = DeviceArray<std::int32_t>("probe's positions", extent(most));
    const std::vector<StreamSpec>& streams = blueprint.batch.streams;
    const index_t samples = context_.samples();
    lengths_ =
        DeviceArray<std::int32_t>("probe's lengths", streams.size() * extent(samples));
    ones_ = DeviceArray<float>("probe's weights", extent(most));
    const model::BlockSpec& block = blueprint.blocks[chunk_.range().begin];
    const index_t rows = block.table.empty() ? 1 : blueprint.table(block.table).rows;
    const auto ids = Kokkos::create_mirror_view(ids_);
    const auto positions = Kokkos::create_mirror_view(positions_);
    const auto lengths = Kokkos::create_mirror_view(lengths_);
    for (std::size_t i = 0; i < lengths.extent(0); ++i) {  // of samples without padding
      lengths(i) = static_cast<std::int32_t>(streams[i / extent(samples)].sequence);
    }
    for (index_t i = 0; i < most; ++i) {
      ids(extent(i)) = static_cast<std::int32_t>(i * 7919 % rows);
      positions(extent(i)) = static_cast<std::int32_t>(i / samples);
    }
    copy(exec_, ids_, ids);
    copy(exec_, positions_, positions);
    copy(exec_, lengths_, lengths);
    exec_.fence("trireme::step::BlockProbe");  // all are read
    kernels::fill(exec_, View1<float>(ones_.data(), extent(most)), 1.0f);
    for (const std::size_t field : fields) {
      const FieldSpec& spec = blueprint.batch.fields[field];
      const StreamSpec& stream = streams[extent(spec.stream)];
      const void* data = ids_.data();
      if (spec.type == DType::float32) data = ones_.data();
      if (spec.name == stream.positions) data = positions_.data();
      if (spec.name == stream.lengths) data = lengths_.data() + spec.stream * samples;
      context_.batch.set(field, data, context_.batch.elements(field));
    }
  }

  std::size_t elements(const model::Border& border) const {
    return extent(model::elements_of(context_, border));
  }
  model::Tensors<T> tensors(const model::Border& border,
                            const DeviceArray<T>& memory) const {
    return model::tensors_of(context_, border, memory.data());
  }

  PieceCost run() {
    const auto in = tensors(chunk_.border_in(), in_),
               d_in = tensors(chunk_.border_in(), d_in_);
    const auto out = tensors(chunk_.border_out(), out_);
    const auto d_out = tensors(chunk_.border_out(), d_out_);
    saved_.reset();
    PieceCost cost;
    cost.forward = seconds([&] { chunk_.forward(context_, 0, in, out); });
    cost.backward_input =
        seconds([&] { chunk_.backward(context_, 0, d_out, d_in, weight_pass_); });
    cost.backward_weight = 0.0;
    if (weight_pass_ == model::WeightPass::later) {
      cost.backward_weight = seconds([&] { chunk_.backward_weight(context_, 0); });
    }
    return cost;
  }

  template <class Pass>
  double seconds(const Pass& pass) const {
    const auto begin = std::chrono::steady_clock::now();
    pass();
    exec_.fence("trireme::step::BlockProbe");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  Exec exec_;
  ParamRegistry registry_;
  ParamBuffer<T> params_;
  model::Chunk<T> chunk_;
  model::WeightPass weight_pass_;
  DeviceArray<kernels::StepState> state_{"probe's step state", 1};
  DeviceArray<double> totals_{"probe's totals", 2 * kernels::kMostObjectives};
  Arena saved_, scratch_, held_;
  DeviceArray<std::byte> memory_;
  DeviceArray<std::int32_t> ids_, positions_, lengths_;
  DeviceArray<float> ones_;
  DeviceArray<T> in_, d_in_, out_, d_out_;
  nn::Context context_;  // refers to the members above
};

}  // namespace

template <class T>
PieceCost time_block(const ModelPart& part, std::size_t block, const config::Deck& deck) {
  return BlockProbe<T>(part, block, deck).shortest();
}
#define TRIREME_INSTANTIATE(T) \
  template PieceCost time_block<T>(const ModelPart&, std::size_t, const config::Deck&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

schedule::ModelCost measured_cost(const comm::ProcessGroups& groups,
                                  const config::Deck& deck) {
  const auto replica = make_replica(deck, groups, sharing(deck));
  const model::Blueprint& blueprint = replica->part().blueprint;
  schedule::ModelCost model = modelled_cost(blueprint, step_shape(deck));
  model.layers_more = 0.0;
  const auto slowest = [&](double mine) {
    return groups.world->all_reduce(mine, comm::Op::max);
  };
  for (std::size_t i = 0; i < blueprint.blocks.size(); ++i) {
    const std::size_t like = blueprint.first_like(i);
    PieceCost& cost = model.blocks[i].cost;
    if (like < i) {
      cost = model.blocks[like].cost;
      continue;
    }
    cost = replica->time_block(i, deck);
    cost = {slowest(cost.forward), slowest(cost.backward_input),
            slowest(cost.backward_weight)};
  }
  return model;
}

std::string deal_by_measured_costs(const comm::ProcessGroups& groups,
                                   config::Deck& deck) {
  const model::Blueprint blueprint = model::make_blueprint(deck.model);
  const PipelineLayout modelled = pipeline_layout(deck);
  const schedule::ModelCost cost = measured_cost(groups, deck);
  const schedule::Split split = schedule::balance(
      modelled.shape(step_shape(deck).microbatches), modelled.schedule, cost);
  deck.parallel.stages.assign(split.begin(), split.end());
  std::string times;
  for (std::size_t i = 0; i < blueprint.blocks.size(); ++i) {
    if (blueprint.first_like(i) < i) continue;
    times += fmt::format("{}{} {:.3g} ms", times.empty() ? "" : ", ",
                         blueprint.blocks[i].name, 1e3 * cost.blocks[i].cost.total());
  }
  return fmt::format(
      "parallel.balance: measured. Forward and backward pass of a micro-batch: {}. "
      "Layers of the chunks: [{}] (by modelled costs: [{}]).",
      times, fmt::join(split, ", "), fmt::join(modelled.split, ", "));
}

}  // namespace trireme::step

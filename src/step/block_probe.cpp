// step/block_probe.cpp — see block_probe.hpp.
//
// A probe makes one block by itself, as a chunk of its own with parameters, a slot and
// borders, and runs its passes a few times; blocks that are alike share one probe. Memory
// is that of one block at a time, and is given back before the model takes its own. A
// tensor that passes the block by is the same memory before and behind it, as within a
// stage: a T5's decoder would else seem slower by copies of the encoder's output. The
// first round touches that memory and lets libraries choose their kernels, so that it
// does not count; of the others the shortest does, because what disturbs a pass on a
// shared machine only makes it longer.
#include "step/block_probe.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <limits>
#include <vector>

#include <fmt/ranges.h>

#include "base/exec.hpp"
#include "comm/communicator.hpp"
#include "kernels/step_state.hpp"
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
  BlockProbe(const ModelState<T>& state, std::size_t block, const config::Deck& deck)
      : spec_(state.blueprint.blocks[block]),
        chunk_(nn::Builder<T>{registry_, params_, state.groups}, state.blueprint,
               {block, block + 1}, state.make),
        weight_pass_(deck.parallel.schedule == config::PipelineSchedule::zero_bubble
                         ? model::WeightPass::later
                         : model::WeightPass::now),
        context_{
            .exec = exec_,
            .groups = state.groups,
            .step = kernels::StepStateView(state_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = step_shape(deck).micro_batch(state.blueprint.batch),
            .totals = totals_,
            .splits_sequence = deck.parallel.sequence && state.groups.tensor->size() > 1,
            .recompute = {.selective = step_shape(deck).recompute.selective},
            .attention = step_shape(deck).attention} {
    allocate(make_exec(deck));
    fill_batch(step_shape(deck).batch_spec(state.blueprint.batch),
               state.blueprint.fields_of(chunk_.range()));
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
  void allocate(const Exec& device) {
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
    in_ = DeviceArray<T>("probe's border", elements(chunk_.border_in()));
    d_in_ = DeviceArray<T>("probe's border", elements(chunk_.border_in()));
    out_ = DeviceArray<T>("probe's border", elements(chunk_.border_out()));
    d_out_ = DeviceArray<T>("probe's border", elements(chunk_.border_out()));
    params_.allocate(registry_, ParamBuffer<T>::Use::training);
    params_.initialize(exec_, 0);
    params_.refresh_compute(exec_);
  }

  void fill_batch(const BatchSpec& batch, const std::vector<std::size_t>& fields) {
    for (const std::size_t index : fields) {
      const index_t count = context_.batch.elements(index);
      const DeviceArray<std::int32_t>& memory =
          fields_.emplace_back("probe's field", extent(count));
      const auto host = Kokkos::create_mirror_view(memory);
      for (index_t i = 0; i < count; ++i) {
        host(extent(i)) =
            probed_element(batch, batch.fields[index], i, context_.samples());
      }
      copy(exec_, memory, host);
      exec_.fence("trireme::step::BlockProbe");  // it is read
      context_.batch.set(index, memory.data(), count);
    }
  }

  std::size_t elements(const model::Border& border) const {
    return extent(model::elements_of(context_, border));
  }
  model::Tensors<T> tensors(const model::Border& border,
                            const DeviceArray<T>& memory) const {
    return model::tensors_of(context_, border, memory.data());
  }
  // Those behind the block; what passes it by is where it was before.
  model::Tensors<T> behind(const DeviceArray<T>& memory,
                           const model::Tensors<T>& before) const {
    const model::Border &in = chunk_.border_in(), &out = chunk_.border_out();
    const model::Tensors<T> made = tensors(out, memory);
    model::Tensors<T> result;
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto at = std::ranges::find(in, out[k].name, &model::BorderTensor::name);
      result.push_back(spec_.passes(out[k].name) ? before[extent(at - in.begin())]
                                                 : made[k]);
    }
    return result;
  }

  PieceCost run() {
    const auto in = tensors(chunk_.border_in(), in_),
               d_in = tensors(chunk_.border_in(), d_in_);
    const auto out = behind(out_, in), d_out = behind(d_out_, d_in);
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

  const model::BlockSpec& spec_;
  Exec exec_;
  ParamRegistry registry_;
  ParamBuffer<T> params_;
  model::Chunk<T> chunk_;
  model::WeightPass weight_pass_;
  DeviceArray<kernels::StepState> state_{"probe's step state", 1};
  DeviceArray<double> totals_{"probe's totals", 2 * kernels::kMostObjectives};
  Arena saved_, scratch_, held_;
  DeviceArray<std::byte> memory_;
  std::vector<DeviceArray<std::int32_t>> fields_;
  DeviceArray<T> in_, d_in_, out_, d_out_;
  nn::Context context_;  // refers to the members above
};

}  // namespace

std::int32_t probed_element(const BatchSpec& batch, const FieldSpec& field, index_t i,
                            index_t samples) {
  const auto positions = [&](int stream) {
    return batch.streams.at(extent(stream)).sequence;
  };
  const auto number = [](index_t value) { return static_cast<std::int32_t>(value); };
  const index_t position = i / samples;
  switch (field.holds) {
    case Holds::words:
    case Holds::classes:
      return number(i * 7919 % std::max(field.below, index_t{1}));
    case Holds::places:
      return number(position);
    case Holds::begins:
      return 0;
    case Holds::lengths:
    case Holds::ends:
      return number(positions(field.stream));
    case Holds::rows: {
      const index_t all = positions(field.stream), of = positions(field.rows_of);
      if (all <= of) return number(position * of / all);
      return number(position < of ? position : index_t{-1});
    }
    case Holds::weights:
      break;
  }
  return std::bit_cast<std::int32_t>(1.0f);
}

template <class T>
PieceCost time_block(const ModelState<T>& state, std::size_t block,
                     const config::Deck& deck) {
  return BlockProbe<T>(state, block, deck).shortest();
}
#define TRIREME_INSTANTIATE(T)                                        \
  template PieceCost time_block<T>(const ModelState<T>&, std::size_t, \
                                   const config::Deck&);
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

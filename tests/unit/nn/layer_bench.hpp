// tests/unit/nn/layer_bench.hpp — what a layer needs to be called alone: parameters with
// random values, arenas of exactly the planned size, a StepState, a group of ranks.
//
// Fresh memory is full of NaNs (every byte 0xff): a number that is read before it is
// written shows. Everything passes through host copies, so that it works on any device.
#ifndef TRIREME_TESTS_UNIT_NN_LAYER_BENCH_HPP_
#define TRIREME_TESTS_UNIT_NN_LAYER_BENCH_HPP_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "model/chunk.hpp"
#include "support/arrays.hpp"

namespace trireme::test {

// Dimensions of all layers under test: no two alike where that can be, and a sequence
// shorter than the model's.
inline constexpr index_t kHidden = 12, kHeads = 4, kKvHeads = 2, kHeadSize = 5,
                         kFfnHidden = 10, kLongest = 7, kSequence = 5, kSamples = 2,
                         kRows = 10, kVocabulary = 13, kLayers = 2;

// Fields of the bench's batch behind GPT's four, which other kinds of model have; and the
// stream of the few positions that one of them predicts, which is not split.
inline constexpr int kLengthsField = 4, kTypesField = 5, kBeginsField = 6, kEndsField = 7,
                     kFewPositionsField = 8, kFewLabelsField = 9, kFewWeightsField = 10,
                     kFewStream = 1;
inline constexpr index_t kFew = 3;  // positions of a sample

inline model::Architecture small_gpt(double dropout) {
  return {.layers = kLayers,
          .hidden = kHidden,
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_size = kHeadSize,
          .ffn_hidden = kFfnHidden,
          .sequence = kLongest,
          .vocab = kVocabulary,
          .dropout = dropout,
          .attention_dropout = dropout};
}

// An arena of some bytes, all of them 0xff.
class NanArena {
 public:
  void allocate(std::size_t bytes) {
    memory_ = DeviceArray<std::byte>("arena", std::max<std::size_t>(bytes, 1));
    arena = Arena(memory_.data(), memory_.extent(0));
    spoil();
  }
  void spoil() {
    arena.reset();
    Kokkos::deep_copy(memory_, std::byte{0xff});
  }
  Arena arena;

 private:
  DeviceArray<std::byte> memory_;
};

// A micro-batch for embedding and head: repeated tokens, positions that are not the
// row's, labels that do not count or count half.
struct TokenBatch {
  explicit TokenBatch(unsigned seed = 1)
      : tokens(integers(seed, kVocabulary)),
        positions(shifted_positions()),
        labels(integers(seed + 100, kVocabulary)),
        mask({1, 0.5, 1, 1, 0, 1, 0.25, 1, 1, 1}),
        lengths({5, 3}),
        types({0, 1, 0, 0, 1, 1, 0, 1, 1, 1}),
        begins({0, 0, 0, 0, 2, 0, 2, 3, 2, 3}),
        ends({2, 3, 2, 3, 5, 3, 5, 5, 5, 5}),
        few_positions({0, 2, 4, 1, -1, -1}),
        few_labels(integers(seed + 200, kVocabulary)),
        few_weights({1, 0.5, 1, 0.25, 0, 1}) {}
  // The fields of a GPT's micro-batch, in their order.
  nn::MicroBatch fields() const {
    nn::MicroBatch batch(kSamples, kSequence);
    batch.streams[0].positions = 1;
    batch.set(0, tokens.vector().data(), kRows);
    batch.set(1, positions.vector().data(), kRows);
    batch.set(2, labels.vector().data(), kRows);
    batch.set(3, mask.vector().data(), kRows);
    batch.streams[kFewStream] = {.sequence = kFew, .is_split = false};
    batch.set(kLengthsField, lengths.vector().data(), kSamples);
    batch.set(kTypesField, types.vector().data(), kRows);
    batch.set(kBeginsField, begins.vector().data(), kRows);
    batch.set(kEndsField, ends.vector().data(), kRows);
    batch.set(kFewPositionsField, few_positions.vector().data(), kFew * kSamples);
    batch.set(kFewLabelsField, few_labels.vector().data(), kFew * kSamples);
    batch.set(kFewWeightsField, few_weights.vector().data(), kFew * kSamples);
    return batch;
  }

  Array<std::int32_t> tokens, positions, labels;
  Array<float> mask;
  Array<std::int32_t> lengths, types, begins, ends, few_positions, few_labels;
  Array<float> few_weights;

 private:
  static std::vector<double> integers(unsigned seed, index_t below) {
    std::vector<double> values = uniform(kRows, seed, 0, static_cast<double>(below));
    for (double& value : values) value = std::floor(value);
    return values;
  }
  static std::vector<double> shifted_positions() {
    std::vector<double> values;
    for (index_t row = 0; row < kRows; ++row) {
      values.push_back(static_cast<double>(row / kSamples + 2 * (row % kSamples)));
    }
    return values;
  }
};

template <class T>
class LayerBench {
 public:
  using Master = Accumulator<T>;
  using Values = std::vector<double>;

  explicit LayerBench(
      std::shared_ptr<comm::Communicator> tensor = comm::make_self_communicator("tensor"))
      : groups(comm::make_process_groups(tensor, {.tensor = tensor->size()})),
        totals(2),
        step_state_("step state", 1) {
    set_step({.seed = 99, .sample_base = 1000003, .objective_count = {2.7}});
  }
  LayerBench(const LayerBench&) = delete;
  LayerBench& operator=(const LayerBench&) = delete;

  nn::Builder<T> builder() { return {registry, params, groups}; }

  // After the layers are made: random weights (the same on every rank where they are the
  // same tensor), and as much memory as `pass`, run on shapes alone, takes.
  void allocate(const std::function<void(const nn::Context&)>& pass,
                double weight_scale = 0.4) {
    Arena saved_plan, scratch_plan, held_plan;
    const Exec shapes = Exec::shape_only();
    pass(context_of(shapes, saved_plan, scratch_plan, held_plan, nn::Mode::training));
    planned = {.saved = {saved_plan.peak()},
               .slots = {1},
               .scratch = scratch_plan.peak(),
               .held = {held_plan.peak()},
               .held_slots = {1}};
    saved.allocate(planned.saved[0]);
    scratch.allocate(planned.scratch);
    held.allocate(planned.held[0]);
    params.allocate(registry, ParamBuffer<T>::Use::training);
    for (std::size_t i = 0; i < registry.size(); ++i) {
      const ParamSpec& spec = registry.spec(i);
      const auto count = static_cast<std::size_t>(spec.shard.real_elements());
      const bool is_split = !spec.shard.is_replicated();
      const unsigned rank = is_split ? static_cast<unsigned>(groups.tensor->rank()) : 0;
      Values values = uniform(count, 1000 * static_cast<unsigned>(i) + rank,
                              -2 * weight_scale, 2 * weight_scale);
      const bool is_scale = spec.init.value == 1.0;  // of a norm
      for (double& value : values) value += is_scale ? 1.0 : 0.0;
      set(Slab::weight, i, values);
    }
  }

  nn::Context context(nn::Mode mode = nn::Mode::training) {
    return context(saved, held, mode);
  }
  // Of a micro-batch with memory of its own.
  nn::Context context(NanArena& saved_, NanArena& held_,
                      nn::Mode mode = nn::Mode::training) {
    return context_of(exec, saved_.arena, scratch.arena, held_.arena, mode);
  }
  // Memory as at the start of a micro-batch.
  void spoil_memory() {
    saved.spoil();
    scratch.spoil();
    held.spoil();
  }

  void set_step(const kernels::StepState& state) {
    const auto host = Kokkos::create_mirror_view(step_state_);
    host(0) = state;
    Kokkos::deep_copy(step_state_, host);
    step = state;
  }

  Values get(Slab slab, std::size_t param) const {
    return read(params.slice(slab, param));
  }
  Values get(Slab slab) const { return read(params.slab(slab)); }
  void set(Slab slab, std::size_t param, const Values& values) {
    write(params.slice(slab, param), values);
    if (slab == Slab::weight) params.refresh_compute(exec);
  }
  void set(Slab slab, const Values& values) { write(params.slab(slab), values); }

  Exec exec;
  comm::ProcessGroups groups;
  ParamRegistry registry;
  ParamBuffer<T> params;
  Workspace::Plan planned;
  NanArena saved, scratch, held;
  kernels::StepState step;
  TokenBatch tokens;
  Array<double> totals;  // of losses

 private:
  nn::Context context_of(const Exec& on, Arena& saved_, Arena& scratch_, Arena& held_,
                         nn::Mode mode) {
    return {.exec = on,
            .groups = groups,
            .step = kernels::StepStateView(step_state_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = tokens.fields(),
            .totals = totals.vector(),
            .mode = mode};
  }

  static Values read(const View1<Master>& view) {
    Kokkos::fence("tests: read back");
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
    return Values(host.data(), host.data() + host.extent(0));
  }
  static void write(const View1<Master>& view, const Values& values) {
    ASSERT_EQ(view.extent(0), values.size());
    const auto host = Kokkos::create_mirror(Kokkos::HostSpace{}, view);
    for (std::size_t i = 0; i < values.size(); ++i) {
      host(i) = static_cast<Master>(values[i]);
    }
    Kokkos::deep_copy(view, host);
  }

  DeviceArray<kernels::StepState> step_state_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_NN_LAYER_BENCH_HPP_

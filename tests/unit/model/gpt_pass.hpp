// tests/unit/model/gpt_pass.hpp — a small GPT on some groups of ranks, and passes of
// micro-batches through it, with the memory that a shape-only pass asked for.
//
// Token and label of a position are functions of the global sample, so that the same
// samples can be grouped in micro-batches, and shared out over ranks, in any way.
#ifndef TRIREME_TESTS_UNIT_MODEL_GPT_PASS_HPP_
#define TRIREME_TESTS_UNIT_MODEL_GPT_PASS_HPP_

#include <memory>
#include <string>
#include <vector>

#include "comm/process_groups.hpp"
#include "comm/self_communicator.hpp"
#include "model/chunk.hpp"
#include "support/arrays.hpp"
#include "support/rows.hpp"

namespace trireme::test {

using Values = std::vector<double>;

inline model::Architecture small_gpt(double dropout = 0.1) {
  return {.layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 4,
          .ffn_hidden = 40,
          .sequence = 13,
          .vocab = 37,
          .dropout = dropout,
          .attention_dropout = dropout,
          .init_std = 0.2};
}

template <class T>
struct Gpt {
  model::Architecture config;
  model::Blueprint blueprint;
  comm::ProcessGroups groups;
  ParamRegistry registry;
  ParamBuffer<T> params;
  model::Chunk<T> chunk;

  explicit Gpt(const model::Architecture& config_in,
               const comm::ProcessGroups& groups_in = comm::make_groups_of_one())
      : Gpt(config_in, model::make_blueprint(config_in).whole(), groups_in) {}
  // A part of the model: some of its blocks.
  Gpt(const model::Architecture& config_in, const model::BlockRange& range,
      const comm::ProcessGroups& groups_in = comm::make_groups_of_one())
      : config(config_in),
        blueprint(model::make_blueprint(config)),
        groups(groups_in),
        chunk(nn::Builder<T>{registry, params, groups}, blueprint, range) {
    params.allocate(registry, ParamBuffer<T>::Use::training);
    params.initialize(Exec(), 4321);
  }
  Gpt(const Gpt&) = delete;
  Gpt& operator=(const Gpt&) = delete;
};

template <class V>
Values values_of(const V& view) {
  Kokkos::fence("tests: read back");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  Values values(host.extent(0));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_double(host(i));
  return values;
}

struct PassShape {
  index_t first_sample = 0;
  index_t batch = 1;
  index_t sequence = 13;
  nn::Mode mode = nn::Mode::training;
  // Weight gradients together with those of the inputs, or in a pass of their own.
  model::WeightPass weight_pass = model::WeightPass::now;
  nn::Recompute recompute = {};
  nn::Gradients gradients = nn::Gradients::taken;
};

// One micro-batch: what goes in, where it is kept, and calls of the chunk.
template <class T>
class Pass {
 public:
  Pass(Gpt<T>& gpt, const PassShape& shape, int slot = 0)
      : gpt_(gpt), shape_(shape), slot_(slot) {
    const auto rows = static_cast<std::size_t>(shape.batch * shape.sequence);
    Values tokens(rows), positions(rows), labels(rows), mask(rows);
    for (index_t r = 0; r < static_cast<index_t>(rows); ++r) {
      const index_t sample = shape.first_sample + r % shape.batch;
      const index_t at = r / shape.batch;
      const auto token = [&](index_t position) {
        return static_cast<double>((sample * 7919 + position * position * 31 + 5) %
                                   gpt_.config.vocab);
      };
      tokens[r] = token(at);
      positions[r] = static_cast<double>(at);
      labels[r] = token(at + 1);
      mask[r] = (sample + at) % 5 == 3 ? 0.0 : 1.0;
    }
    tokens_ = Array<std::int32_t>(tokens);
    positions_ = Array<std::int32_t>(positions);
    labels_ = Array<std::int32_t>(labels);
    mask_ = Array<float>(mask);
    kernels::StepState step;
    step.seed = 99;
    step.sample_base = static_cast<std::uint64_t>(shape.first_sample);
    step.objective_count[0] = 64.0;
    Kokkos::deep_copy(step_, step);
    plan();
  }

  void forward() {
    saved_.reset();
    run_forward(exec_);
    exec_.fence("test");
  }
  void backward() {
    run_backward(exec_);
    exec_.fence("test");
  }
  // Both on an Exec that only counts, or each on one of its own.
  void count(const Exec& exec) { count(exec, exec); }
  void count(const Exec& forward, const Exec& backward) {
    saved_.reset();
    run_forward(forward);
    run_backward(backward);
  }

  nn::Context context(const Exec& exec) {
    return {.exec = exec,
            .groups = gpt_.groups,
            .step = kernels::StepStateView(step_.data()),
            .saved = &saved_,
            .scratch = scratch_,
            .held = held_,
            .batch = batch(),
            .totals = totals_.vector(),
            .mode = shape_.mode,
            .gradients = shape_.gradients,
            .recompute = shape_.recompute};
  }
  // What crosses the borders of a chunk that is no whole model: activations, and in the
  // backward pass their gradients.
  const Array<T>& input() const { return input_; }
  const Array<T>& output() const { return output_; }
  const Array<T>& d_input() const { return d_input_; }
  const Array<T>& d_output() const { return d_output_; }
  const Exec& exec() const { return exec_; }
  Arena& saved() { return saved_; }
  Arena& scratch() { return scratch_; }
  Arena& held() { return held_; }
  std::size_t planned_saved() const { return planned_saved_; }
  std::size_t planned_scratch() const { return planned_scratch_; }
  std::size_t planned_held() const { return planned_held_; }
  // Sum of mask * loss, sum of mask.
  Values totals() const { return totals_.values(); }
  // Of a forward pass in evaluation.
  Values logits() {
    const index_t rows = shape_.batch * shape_.sequence;
    const index_t columns = gpt_.chunk.logit_columns();
    const Array<T> memory(static_cast<std::size_t>(rows * columns));
    return rows_of(
        gpt_.chunk.logits_again(context(exec_), slot_, memory.matrix(rows, columns)));
  }

 private:
  nn::MicroBatch batch() const {
    BatchSpec spec = gpt_.blueprint.batch;
    spec.streams[0].sequence = shape_.sequence;
    nn::MicroBatch batch(spec, shape_.batch);
    const index_t rows = shape_.sequence * shape_.batch;
    batch.set(spec.field("tokens"), tokens_.vector().data(), rows);
    batch.set(spec.field("positions"), positions_.vector().data(), rows);
    batch.set(spec.field("labels"), labels_.vector().data(), rows);
    batch.set(spec.field("loss_mask"), mask_.vector().data(), rows);
    return batch;
  }
  model::Tensors<T> at(const model::Border& border, const Array<T>& values) {
    return model::tensors_of(context(exec_), border, values.vector().data());
  }
  void run_forward(const Exec& exec) {
    model::Chunk<T>& chunk = gpt_.chunk;
    chunk.forward(context(exec), slot_, at(chunk.border_in(), input_),
                  at(chunk.border_out(), output_));
  }
  void run_backward(const Exec& exec) {
    model::Chunk<T>& chunk = gpt_.chunk;
    chunk.backward(context(exec), slot_, at(chunk.border_out(), d_output_),
                   at(chunk.border_in(), d_input_), shape_.weight_pass);
    if (shape_.weight_pass == model::WeightPass::later) {
      chunk.backward_weight(context(exec), slot_);
    }
  }
  // Arenas of exactly the size that a shape-only pass takes.
  void plan() {
    const Exec shape_only = Exec::shape_only();
    for (Array<T>* border : {&input_, &output_, &d_input_, &d_output_}) {
      *border = Array<T>(
          static_cast<std::size_t>(shape_.batch * shape_.sequence * gpt_.config.hidden));
    }
    run_forward(shape_only);
    if (context(shape_only).takes_gradients()) run_backward(shape_only);
    planned_saved_ = saved_.peak();
    planned_scratch_ = scratch_.peak();
    planned_held_ = held_.peak();
    // Filled with ones: a NaN, where something is read that nobody wrote.
    memory_ = Kokkos::View<std::byte*, DeviceMemory>(
        "memory", planned_saved_ + planned_scratch_ + planned_held_);
    Kokkos::deep_copy(memory_, std::byte{0xff});
    saved_ = Arena(memory_.data(), planned_saved_);
    scratch_ = Arena(memory_.data() + planned_saved_, planned_scratch_);
    held_ = Arena(memory_.data() + planned_saved_ + planned_scratch_, planned_held_);
  }

  Gpt<T>& gpt_;
  PassShape shape_;
  int slot_;
  std::size_t planned_saved_ = 0, planned_scratch_ = 0, planned_held_ = 0;
  Exec exec_;
  Array<std::int32_t> tokens_{Values{}}, positions_{Values{}}, labels_{Values{}};
  Array<float> mask_{Values{}};
  Array<T> input_{Values{}}, output_{Values{}}, d_input_{Values{}}, d_output_{Values{}};
  Array<double> totals_{Values(2)};
  Kokkos::View<kernels::StepState, DeviceMemory> step_{"state"};
  Kokkos::View<std::byte*, DeviceMemory> memory_;
  Arena saved_, scratch_, held_;
};

// Loss and gradients of samples [first, first + count) in micro-batches of `micro`.
template <class T>
Values accumulate(Gpt<T>& gpt, index_t first, index_t count, index_t micro,
                  model::WeightPass weight_pass = model::WeightPass::now,
                  const nn::Recompute& recompute = {}) {
  Kokkos::deep_copy(gpt.params.slab(Slab::gradient), Accumulator<T>(0));
  Values totals(2);
  for (index_t at = first; at < first + count; at += micro) {
    Pass<T> pass(gpt, {.first_sample = at,
                       .batch = micro,
                       .weight_pass = weight_pass,
                       .recompute = recompute});
    pass.forward();
    pass.backward();
    for (std::size_t i = 0; i < 2; ++i) totals[i] += pass.totals()[i];
  }
  return totals;
}

template <class T>
Values gradient_of(const Gpt<T>& gpt, std::size_t param) {
  return values_of(gpt.params.slice(Slab::gradient, param));
}

// The part of a whole tensor that a shard holds, without rows of padding.
inline Values part_of(const Values& whole, const ShardSpec& shard) {
  if (shard.is_replicated()) return whole;
  const bool is_matrix = shard.global_shape.size() == 2;
  const index_t columns = is_matrix ? shard.global_shape[1] : 1;
  const index_t local_columns = is_matrix ? shard.local_shape[1] : 1;
  Values part(shard.real_elements());
  for (const Segment& segment : shard.segments) {
    const bool by_column = shard.dimension == 1;
    const index_t rows = by_column ? shard.global_shape[0] : segment.extent;
    const index_t width = by_column ? segment.extent : columns;
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < width; ++j) {
        const index_t from = by_column ? i * columns + segment.global_begin + j
                                       : (segment.global_begin + i) * columns + j;
        const index_t to = by_column ? i * local_columns + segment.local_begin + j
                                     : (segment.local_begin + i) * local_columns + j;
        part[to] = whole[from];
      }
    }
  }
  return part;
}

// || a - b || <= bound * max(|| b ||, floor)
inline void expect_close_in_norm(const Values& a, const Values& b, double bound,
                                 double floor, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  EXPECT_LE(std::sqrt(difference), bound * std::max(std::sqrt(size), floor)) << what;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_MODEL_GPT_PASS_HPP_

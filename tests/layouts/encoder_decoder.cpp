// layouts/encoder_decoder.cpp — see encoder_decoder.hpp. A block of its own has a class
// here, with a slot for each micro-batch in flight; kernels are functions above it.
#include "layouts/encoder_decoder.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/gemm.hpp"
#include "kernels/reductions.hpp"
#include "nn/mlp.hpp"
#include "nn/weight_gradients.hpp"

namespace trireme::test {

namespace {

using model::BlockSpec;
using model::Making;
using model::Tensors;
using nn::as_const;
using nn::WeightPass;

constexpr int kText = 0, kSource = 1;  // streams; and what a 'meet' block reads
constexpr int kMarks = 2;              // a stream that is not split

template <class T>
void add(const nn::Context& context, View2<const T> a, View1<const T> bias,
         View2<const T> b, View2<T> sum) {
  kernels::bias_dropout_add_forward<T>(context.exec, {.batch = context.samples()},
                                       context.step, a, bias, b, sum);
}

// What the weight pass needs of a gradient: where it comes later, a copy.
template <class T>
View2<T> kept(const nn::Context& context, const View2<T>& d_y, WeightPass weight_pass) {
  if (weight_pass == WeightPass::now) return d_y;
  const auto copied =
      context.held.matrix<T>(Category::gradient, static_cast<index_t>(d_y.extent(0)),
                             static_cast<index_t>(d_y.extent(1)));
  copy(context.exec, copied, d_y);
  return copied;
}

template <class T>
class TestBlock : public model::Block<T> {
 public:
  std::string locate_non_finite(const nn::Context&, const model::FiniteCheck<T>&,
                                int) const override {
    return {};  // what it makes is looked at by the chunk
  }
};

// y = table[ids], or x + table[ids] where it reads a tensor.
template <class T>
class WordsBlock final : public TestBlock<T> {
 public:
  explicit WordsBlock(const Making<T>& making)
      : ids_(making.blueprint.batch.field(making.spec().fields.at(0))),
        adds_(!making.spec().is_source()),
        words_(making.words()) {
    making.builder.registry.begin_unit(making.spec().name, making.table().unit);
  }

  void set_slot_count(int slots) override { d_y_.resize(extent(slots)); }

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>& out) override {
    decode(context, nullptr, in, out);
  }
  void decode(const nn::Context& context, nn::KvCache<T>*, const Tensors<T>& in,
              const Tensors<T>& out) const override {
    words_.forward(context, context.ids(ids_), out[0]);
    if (adds_) add<T>(context, out[0], {}, in[0], out[0]);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    if (adds_) copy(context.exec, d_in[0], d_out[0]);
    d_y_.at(extent(slot)) = kept(context, d_out[0], weight_pass);
    if (weight_pass == WeightPass::now) backward_weight(context, slot);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    words_.backward_weight(context, context.ids(ids_), d_y_.at(extent(slot)));
  }

 private:
  std::size_t ids_;  // field
  bool adds_;
  nn::VocabParallelEmbedding<T> words_;
  std::vector<View2<T>> d_y_;
};

// nvcc takes no temporary with named members as an argument.
config::ModelConfig source_config(const config::ModelConfig& of) {
  config::ModelConfig config;
  config.layers = 1;
  config.hidden = kSourceHidden;
  config.ffn_hidden = of.hidden;
  config.init_std = of.init_std;
  return config;
}

// y = x + mlp(x).
template <class T>
class MlpBlock final : public TestBlock<T> {
 public:
  explicit MlpBlock(const Making<T>& making)
      : mlp_(begin_unit(making), making.spec().name,
             nn::mlp_form(source_config(making.blueprint.architecture))) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out) override {
    mlp_.forward(context, in[0], out[0], slots_.at(extent(slot)).saved);
    add<T>(context, out[0], mlp_.output_bias(), in[0], out[0]);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    Slot& of = slots_.at(extent(slot));
    const View2<T> d_y = kept(context, d_out[0], weight_pass);
    of.bias = context.held.matrix<Accumulator<T>>(
        Category::gradient,
        kernels::partial_count(static_cast<index_t>(d_y.extent(0)), kSourceHidden),
        kSourceHidden);
    kernels::bias_dropout_add_backward<T>(context.exec, {.batch = context.samples()},
                                          context.step, d_y, {}, of.bias);
    mlp_.start_backward_input(context, d_y, of.saved, d_in[0], of.held)
        .wait(context.exec);
    add<T>(context, d_in[0], {}, d_y, d_in[0]);
    if (weight_pass == WeightPass::now) backward_weight(context, slot);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const Slot& of = slots_.at(extent(slot));
    nn::PartialGradients<T> gradients;
    mlp_.backward_weight(context, of.saved, of.held, gradients);
    mlp_.backward_output_bias(as_const(of.bias), gradients);
    gradients.add_all(context.exec);
  }

 private:
  struct Slot {
    typename nn::Mlp<T>::Saved saved;
    typename nn::Mlp<T>::Held held;
    View2<Accumulator<T>> bias;  // sums over blocks of rows of its gradient
  };
  static const nn::Builder<T>& begin_unit(const Making<T>& making) {
    making.builder.registry.begin_unit(making.spec().name);
    return making.builder;
  }

  nn::Mlp<T> mlp_;
  std::vector<Slot> slots_;
};

// Rows are position r / b of sample r % b. marks (n, c): of x (rows, c) those that `rows`
// has, each a position of the same sample, as far as they are here, where the first is at
// position `begin`; zeros for others.
template <class T>
void gather_forward(const Exec& exec, View2<const T> x, View1<const std::int32_t> rows,
                    index_t samples, index_t begin, View2<T> marks) {
  const auto c = static_cast<index_t>(x.extent(1));
  const index_t positions = static_cast<index_t>(x.extent(0)) / samples;
  const index_t elements = static_cast<index_t>(marks.extent(0)) * c;
  launch(
      exec, "trireme::test::gather_forward", elements, KOKKOS_LAMBDA(const index_t i) {
        const index_t r = i / c, j = i % c, p = rows(r) - begin;
        const bool is_here = rows(r) >= 0 && p >= 0 && p < positions;
        marks(r, j) = is_here ? x(p * samples + r % samples, j) : T{0};
      });
}

// No two marks of a sample are the same position.
template <class T>
void gather_backward(const Exec& exec, View2<const T> d_marks,
                     View1<const std::int32_t> rows, index_t samples, index_t begin,
                     View2<T> d_x) {
  const auto c = static_cast<index_t>(d_x.extent(1));
  const index_t positions = static_cast<index_t>(d_x.extent(0)) / samples;
  const index_t elements = static_cast<index_t>(d_marks.extent(0)) * c;
  launch(
      exec, "trireme::test::gather_backward", elements, KOKKOS_LAMBDA(const index_t i) {
        const index_t r = i / c, j = i % c, p = rows(r) - begin;
        const bool is_here = rows(r) >= 0 && p >= 0 && p < positions;
        if (is_here) d_x(p * samples + r % samples, j) += d_marks(r, j);
      });
}

// Some positions of the source, on every tensor rank.
template <class T>
class GatherBlock final : public TestBlock<T> {
 public:
  explicit GatherBlock(const Making<T>& making)
      : rows_(making.blueprint.batch.field(making.spec().fields.at(0))) {}

  void set_slot_count(int) override {}

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>& out) override {
    const nn::Context source = context.on_stream(kSource);
    gather_forward<T>(context.exec, in[0], context.ids(rows_), context.samples(),
                      source.sequence_begin(), out[0]);
    if (!source.sequence_parallel()) return;
    context.groups.tensor->all_reduce(context.exec, comm::span_of(out[0]), comm::Op::sum,
                                      "marks of the source");
  }
  // `memory` goes on, and has a gradient.
  void backward_input(const nn::Context& context, int, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass) override {
    gather_backward<T>(context.exec, d_out[0], context.ids(rows_), context.samples(),
                       context.on_stream(kSource).sequence_begin(), d_in[0]);
  }
  void backward_weight(const nn::Context&, int) override {}

 private:
  std::size_t rows_;  // field
};

// What the classes of marks are told apart by, in a unit of its own.
template <class T>
ParamRef<T> add_classes(const Making<T>& making) {
  making.builder.registry.begin_unit(making.spec().name);
  return making.builder.add(
      {.name = making.spec().name + "/weight",
       .shard = replicated({kMarkClasses, kSourceHidden}),
       .init = Initializer::normal(making.blueprint.architecture.init_std),
       .decay = true,
       .in_sequence_region = true});
}

// The second objective: a class for each mark, -log softmax(W x)[class].
template <class T>
class ClassifyBlock final : public TestBlock<T> {
 public:
  explicit ClassifyBlock(const Making<T>& making)
      : objective_(making.objective()),
        labels_(making.blueprint.batch.field(making.spec().fields.at(0))),
        mask_(making.blueprint.batch.field(making.spec().fields.at(1))),
        weight_(add_classes(making)) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>&) override {
    using Acc = Accumulator<T>;
    Slot& of = slots_.at(extent(slot));
    const index_t rows = context.rows();
    of.x = in[0];
    of.logits = context.saved->matrix<T>(Category::logits, rows, kMarkClasses);
    of.row_max = context.saved->vector<Acc>(Category::logits, rows);
    of.sums = context.saved->matrix<Acc>(Category::logits, rows, 2);
    const auto loss = context.saved->vector<Acc>(Category::logits, rows);
    const auto labels = context.ids(labels_);
    kernels::linear_forward<T>(context.exec, of.x, weight_.operand(), of.logits);
    kernels::cross_entropy_row_max_and_sums<T>(context.exec, kAll, as_const(of.logits),
                                               labels, of.row_max, of.sums);
    kernels::cross_entropy_loss<T>(context.exec, as_const(of.row_max), as_const(of.sums),
                                   context.weights(mask_), loss,
                                   context.totals_of(objective_.index));
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>&,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const Slot& of = slots_.at(extent(slot));
    kernels::cross_entropy_backward<T>(
        context.exec, kAll, context.step, objective_, context.ids(labels_),
        context.weights(mask_), as_const(of.row_max), as_const(of.sums), of.logits);
    kernels::linear_backward_input<T>(context.exec, as_const(of.logits),
                                      weight_.operand(), d_in[0]);
    if (weight_pass == WeightPass::now) backward_weight(context, slot);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const Slot& of = slots_.at(extent(slot));
    nn::product_gradient(context.exec, weight_, as_const(of.logits), as_const(of.x));
  }

 private:
  static constexpr kernels::VocabRange kAll{0, kMarkClasses};
  struct Slot {
    View2<T> x, logits;  // which become their gradient
    View1<Accumulator<T>> row_max;
    View2<Accumulator<T>> sums;
  };
  kernels::ObjectiveScale objective_;
  std::size_t labels_, mask_;  // fields
  ParamRef<T> weight_;         // (classes, c)
  std::vector<Slot> slots_;
};

// mean (b, c): of x (rows, c) over the positions of each sample that are real, as far as
// they are among these rows, the first of which is at position `begin`.
template <class T>
void mean_forward(const Exec& exec, View2<const T> x, View1<const std::int32_t> lengths,
                  index_t begin, View2<T> mean) {
  const auto b = static_cast<index_t>(mean.extent(0));
  const auto c = static_cast<index_t>(mean.extent(1));
  const index_t positions = static_cast<index_t>(x.extent(0)) / b;
  launch(
      exec, "trireme::test::mean_forward", b * c, KOKKOS_LAMBDA(const index_t i) {
        const index_t n = i / c, j = i % c, length = lengths(n);
        T sum = 0;
        for (index_t p = 0; p < positions && begin + p < length; ++p) {
          sum += x(p * b + n, j);
        }
        mean(n, j) = sum / static_cast<T>(length);
      });
}

// Of positions that do not count the gradient is 0.
template <class T>
void mean_backward(const Exec& exec, View2<const T> d_mean,
                   View1<const std::int32_t> lengths, index_t begin, bool adds,
                   View2<T> d_x) {
  const auto b = static_cast<index_t>(d_mean.extent(0));
  const auto c = static_cast<index_t>(d_mean.extent(1));
  launch(
      exec, "trireme::test::mean_backward", static_cast<index_t>(d_x.size()),
      KOKKOS_LAMBDA(const index_t i) {
        const index_t r = i / c, j = i % c, n = r % b;
        const bool counts = begin + r / b < lengths(n);
        const T value = counts ? d_mean(n, j) / static_cast<T>(lengths(n)) : T{0};
        d_x(r, j) = adds ? d_x(r, j) + value : value;
      });
}

// The same of what a cache holds of each text's source, (places * capacity, c).
template <class T>
void mean_of_cached(const Exec& exec, const kernels::CachedTexts& sources,
                    View2<const T> x, View2<T> mean) {
  const auto c = static_cast<index_t>(mean.extent(1));
  launch(
      exec, "trireme::test::mean_of_cached", static_cast<index_t>(mean.size()),
      KOKKOS_LAMBDA(const index_t i) {
        const index_t text = i / c, j = i % c, length = sources.length(text);
        T sum = 0;
        for (index_t p = 0; p < length; ++p) sum += x(sources.first_row(text) + p, j);
        mean(text, j) = sum / static_cast<T>(length);
      });
}

// y(r, j) = x(r, j) (1 + gate(j) mean(r % b, j % c)).
template <class T>
void gate_forward(const Exec& exec, View2<const T> x, View1<const T> gate,
                  View2<const T> mean, View2<T> y) {
  const auto b = static_cast<index_t>(mean.extent(0));
  const auto c = static_cast<index_t>(mean.extent(1));
  const auto h = static_cast<index_t>(x.extent(1));
  launch(
      exec, "trireme::test::gate_forward", static_cast<index_t>(x.size()),
      KOKKOS_LAMBDA(const index_t i) {
        const index_t r = i / h, j = i % h;
        y(r, j) = x(r, j) * (1 + gate(j) * mean(r % b, j % c));
      });
}

template <class T>
void gate_backward_mean(const Exec& exec, View2<const T> d_y, View2<const T> x,
                        View1<const T> gate, View2<T> d_mean) {
  const auto b = static_cast<index_t>(d_mean.extent(0));
  const auto c = static_cast<index_t>(d_mean.extent(1));
  const auto h = static_cast<index_t>(x.extent(1));
  const auto rows = static_cast<index_t>(x.extent(0));
  launch(
      exec, "trireme::test::gate_backward_mean", b * c, KOKKOS_LAMBDA(const index_t i) {
        T sum = 0;
        for (index_t r = i / c; r < rows; r += b) {
          for (index_t j = i % c; j < h; j += c) sum += d_y(r, j) * x(r, j) * gate(j);
        }
        d_mean(i / c, i % c) = sum;
      });
}

template <class T>
void gate_backward_weight(const Exec& exec, View2<const T> d_y, View2<const T> x,
                          View2<const T> mean, kernels::Accumulate accumulate,
                          View1<T> d_gate) {
  const auto b = static_cast<index_t>(mean.extent(0));
  const auto c = static_cast<index_t>(mean.extent(1));
  const auto rows = static_cast<index_t>(x.extent(0));
  const bool adds = accumulate == kernels::Accumulate::yes;
  launch(
      exec, "trireme::test::gate_backward_weight", static_cast<index_t>(d_gate.extent(0)),
      KOKKOS_LAMBDA(const index_t j) {
        T sum = 0;
        for (index_t r = 0; r < rows; ++r)
          sum += d_y(r, j) * x(r, j) * mean(r % b, j % c);
        d_gate(j) = adds ? d_gate(j) + sum : sum;
      });
}

template <class T>
void sum_over_sequence(const nn::Context& context, const View2<T>& x, comm::Site site) {
  if (!context.sequence_parallel()) return;
  context.groups.tensor->all_reduce(context.exec, comm::span_of(x), comm::Op::sum, site);
}

// Where the decoder sees the encoder: text (1 + gate mean(memory)), with the mean over as
// many positions as a sample's source has.
template <class T>
class MeetBlock final : public TestBlock<T> {
 public:
  explicit MeetBlock(const Making<T>& making)
      : passes_(making.spec().passes("memory")),
        gate_(begin_unit(making).add(
            {.name = making.spec().name + "/gate",
             .shard = replicated({making.blueprint.architecture.hidden}),
             .init = Initializer::constant(0.5),
             .in_sequence_region = true})) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out) override {
    Slot& of = slots_.at(extent(slot));
    const nn::Context source = context.on_stream(kSource);
    of.text = in[kText];
    of.mean =
        context.saved->matrix<T>(Category::hidden, context.samples(), kSourceHidden);
    mean_forward<T>(context.exec, in[kSource], context.lengths(kSource),
                    source.sequence_begin(), of.mean);
    sum_over_sequence(context, of.mean, "mean of the source");
    gate_forward<T>(context.exec, of.text, gate_.vector(), of.mean, out[kText]);
  }
  void begin_text(const nn::Context& context, nn::KvCache<T>& cache,
                  const Tensors<T>& in) const override {
    const auto first = static_cast<std::size_t>(cache.sources.first_row(0));
    const auto rows = Kokkos::make_pair(first, first + in[kSource].extent(0));
    copy(context.exec, Kokkos::subview(cache.source_k, rows, Kokkos::ALL()), in[kSource]);
  }
  index_t source_columns() const override { return kSourceHidden; }
  void decode(const nn::Context& context, nn::KvCache<T>* cache, const Tensors<T>& in,
              const Tensors<T>& out) const override {
    const ArenaScope scope(context.scratch);
    const auto mean =
        context.scratch.matrix<T>(Category::hidden, context.samples(), kSourceHidden);
    mean_of_cached<T>(context.exec, cache->sources, cache->source_k, mean);
    gate_forward<T>(context.exec, in[kText], gate_.vector(), mean, out[kText]);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    Slot& of = slots_.at(extent(slot));
    of.d_y = kept(context, d_out[kText], weight_pass);
    const ArenaScope scope(context.scratch);
    const auto d_mean =
        context.scratch.matrix<T>(Category::gradient, context.samples(), kSourceHidden);
    gate_backward_mean<T>(context.exec, of.d_y, of.text, gate_.vector(), d_mean);
    sum_over_sequence(context, d_mean, "mean of the source, gradient");
    gate_forward<T>(context.exec, of.d_y, gate_.vector(), of.mean, d_in[kText]);
    mean_backward<T>(context.exec, d_mean, context.lengths(kSource),
                     context.on_stream(kSource).sequence_begin(), passes_, d_in[kSource]);
    if (weight_pass == WeightPass::now) backward_weight(context, slot);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const Slot& of = slots_.at(extent(slot));
    gate_backward_weight<T>(context.exec, of.d_y, of.text, of.mean,
                            gate_.begin_gradient(), gate_.vector_gradient());
  }

 private:
  struct Slot {
    View2<T> text, mean, d_y;
  };
  static const nn::Builder<T>& begin_unit(const Making<T>& making) {
    making.builder.registry.begin_unit(making.spec().name);
    return making.builder;
  }
  bool passes_;       // `memory` goes on
  ParamRef<T> gate_;  // (h)
  std::vector<Slot> slots_;
};

// All rows of `x` are here, on each tensor rank.
template <class T>
void give(const nn::Context& context, View2<const T> x) {
  const View2<float> output = context.output;
  const auto columns = static_cast<index_t>(x.extent(1));
  launch(
      context.exec, "trireme::test::give", static_cast<index_t>(x.size()),
      KOKKOS_LAMBDA(const index_t i) {
        output(i / columns, i % columns) =
            static_cast<float>(x(i / columns, i % columns));
      });
}

// A block of a model that is made for its output has no other pass.
template <class T>
class OutputBlock : public TestBlock<T> {
 public:
  void set_slot_count(int) override {}
  void backward_input(const nn::Context&, int, const Tensors<T>&, const Tensors<T>&,
                      WeightPass) override {
    throw Error("an output has no gradient");
  }
  void backward_weight(const nn::Context&, int) override {}
};

// A vector of each sample: the mean of its source's memory.
template <class T>
class PoolBlock final : public OutputBlock<T> {
 public:
  explicit PoolBlock(const Making<T>&) {}

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ArenaScope scope(context.scratch);
    const auto mean =
        context.scratch.matrix<T>(Category::hidden, context.samples(), kSourceHidden);
    mean_forward<T>(context.exec, in[0], context.lengths(context.stream),
                    context.sequence_begin(), mean);
    sum_over_sequence(context, mean, "mean of the source");
    give<T>(context, mean);
  }
};

// What ClassifyBlock makes its loss of, for each mark.
template <class T>
class ClassesBlock final : public OutputBlock<T> {
 public:
  explicit ClassesBlock(const Making<T>& making) : weight_(add_classes(making)) {}

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ArenaScope scope(context.scratch);
    const auto logits =
        context.scratch.matrix<T>(Category::logits, context.rows(), kMarkClasses);
    kernels::linear_forward<T>(context.exec, in[0], weight_.operand(), logits);
    give<T>(context, logits);
  }

 private:
  ParamRef<T> weight_;  // (classes, c)
};

// `gpt`: of the same dimensions, one of whose layers the blocks of kind "layer" are.
BlockSpec decoder_layer(const model::Blueprint& blueprint, const model::Blueprint& gpt,
                        index_t number, index_t count) {
  const bool is_last = number + 1 == count && count > 2;
  const bool meets = number == 0 || is_last;
  BlockSpec block{.kind = meets             ? "meet"
                          : number % 2 == 1 ? "words"
                                            : "layer",
                  .name = fmt::format("decoder/{}", number),
                  .is_layer = true,
                  .number = number,
                  .border = blueprint.blocks.back().border,
                  .reads = {"text"},
                  .makes = {"text"}};
  if (meets) {
    block.reads.push_back("memory");
    block.fields = {"source_lengths"};
    block.parameters = blueprint.architecture.hidden;  // the gate
  } else if (block.kind == "words") {
    block.fields = {"tokens"};
    block.table = "notes";
  } else {
    block.parameters = gpt.blocks[1].parameters;
    block.products = gpt.blocks[1].products;
    block.attention = gpt.blocks[1].attention;
  }
  if (is_last || count == 2) {
    std::erase_if(block.border, [](const auto& of) { return of.name == "memory"; });
  }
  return block;
}

// x + mlp(x), of rows of a stream.
BlockSpec mlp_block(const std::string& name, const char* tensor, int stream,
                    const model::Border& border, index_t inner) {
  return {.kind = "mlp",
          .name = name,
          .border = border,
          .reads = {tensor},
          .makes = {tensor},
          .stream = stream,
          .parameters = 2 * kSourceHidden * inner + inner + kSourceHidden,
          .products = {{.flops = 4.0 * kSourceHidden * static_cast<double>(inner),
                        .stream = stream}}};
}

BatchSpec batch_of(const model::Architecture& text) {
  using enum Holds;
  return {
      .streams = {{"text", text.sequence},
                  {"source", kSourceSequence},
                  {.name = "marks", .sequence = kMarkCount, .is_split = false}},
      .fields = {{.name = "tokens", .below = text.vocab},
                 {.name = "positions", .holds = places},
                 {.name = "labels", .below = text.vocab},
                 {.name = "loss_mask", .holds = weights},
                 {.name = "source", .stream = kSource, .below = kSourceVocabulary},
                 {.name = "source_lengths",
                  .per = Per::sample,
                  .stream = kSource,
                  .holds = lengths},
                 {.name = "marked", .stream = kMarks, .holds = rows, .rows_of = kSource},
                 {.name = "mark_labels",
                  .stream = kMarks,
                  .holds = classes,
                  .below = kMarkClasses},
                 {.name = "mark_weights", .stream = kMarks, .holds = weights}}};
}

// Layers of the encoder, and the blocks before them.
void add_encoder(model::Blueprint& blueprint) {
  const model::Border memory = {{"memory", kSource, kSourceHidden}};
  blueprint.blocks.push_back({.kind = "words",
                              .name = "encoder/words",
                              .border = memory,
                              .makes = {"memory"},
                              .fields = {"source"},
                              .table = "encoder/word",
                              .stream = kSource});
  for (index_t i = 0; i < blueprint.architecture.layers / 3; ++i) {
    BlockSpec layer = mlp_block(fmt::format("encoder/{}", i), "memory", kSource, memory,
                                blueprint.architecture.hidden);
    layer.is_layer = true;
    layer.number = i;
    blueprint.blocks.push_back(layer);
  }
}

// `border`: behind each of them.
void add_marks(model::Blueprint& blueprint, const model::Border& border) {
  blueprint.blocks.push_back({.kind = "gather",
                              .name = "marks/gather",
                              .border = border,
                              .reads = {"memory"},
                              .makes = {"marks"},
                              .fields = {"marked"},
                              .stream = kMarks});
  blueprint.blocks.push_back(
      mlp_block("marks/mlp", "marks", kMarks, border, blueprint.architecture.hidden));
}

BlockSpec classes_block(const char* kind, const model::Border& border) {
  return {.kind = kind,
          .name = "marks/classify",
          .border = border,
          .reads = {"marks"},
          .stream = kMarks,
          .parameters = kMarkClasses * kSourceHidden,
          .products = {{.flops = 2.0 * kMarkClasses * kSourceHidden, .stream = kMarks}}};
}

// What gives the vectors, or the classes.
void add_output(model::Blueprint& blueprint, model::Use use) {
  if (use == model::Use::vectors) {
    blueprint.blocks.push_back(
        {.kind = "pool",
         .name = "pool",
         .reads = {"memory"},
         .fields = {"source_lengths"},
         .stream = kSource,
         .output = {{.columns = kSourceHidden, .per = Per::sample}}});
    return;
  }
  add_marks(blueprint, {{"marks", kMarks, kSourceHidden}});
  BlockSpec classes = classes_block("classes", {});
  classes.output = {.columns = kMarkClasses};
  blueprint.blocks.push_back(classes);
}

void add_decoder(model::Blueprint& blueprint) {
  const model::Architecture& text = blueprint.architecture;
  const model::Blueprint gpt = model::make_blueprint(text);
  model::Border border = blueprint.blocks.back().border;
  // What a block reads does not stand first here.
  border.push_back({"text", kText, text.hidden});
  blueprint.blocks.push_back({.kind = "embedding",
                              .name = "embedding",
                              .border = border,
                              .makes = {"text"},
                              .fields = {"tokens", "positions"},
                              .table = "embedding/word",
                              .parameters = gpt.blocks.front().parameters});
  const index_t count = text.layers - text.layers / 3;
  for (index_t i = 0; i < count; ++i) {
    blueprint.blocks.push_back(decoder_layer(blueprint, gpt, i, count));
  }
  BlockSpec classify = classes_block("classify", {border.back()});
  classify.fields = {"mark_labels", "mark_weights"};
  classify.objective = 1;
  blueprint.blocks.push_back(classify);
  blueprint.blocks.push_back({.kind = "head",
                              .name = "head",
                              .reads = {"text"},
                              .fields = {"labels", "loss_mask"},
                              .table = "embedding/word",
                              .parameters = gpt.blocks.back().parameters,
                              .products = gpt.blocks.back().products,
                              .objective = 0,
                              .gradients_in_forward = true});
}

}  // namespace

model::Blueprint encoder_decoder(const model::Architecture& text, model::Use use) {
  model::Blueprint blueprint{
      .architecture = text, .batch = batch_of(text), .vocabulary = "encoder/word"};
  const auto table = [&](const char* name, const char* unit, index_t rows,
                         index_t columns) {
    blueprint.tables.push_back({name, unit, rows, columns, text.init_std});
  };
  table("encoder/word", "encoder/word", kSourceVocabulary, kSourceHidden);
  add_encoder(blueprint);
  if (use == model::Use::vectors || use == model::Use::words) {
    add_output(blueprint, use);
    blueprint.check();
    return blueprint;
  }
  blueprint.objectives = {{.name = "loss", .mask = "loss_mask", .labels = "labels"},
                          {.name = "marks", .weight = 0.5, .mask = "mark_weights"}};
  blueprint.decoded = {.tokens = "tokens",
                       .positions = "positions",
                       .source = "source",
                       .source_lengths = "source_lengths",
                       .begins_with_padding = true};
  blueprint.vocabulary = "embedding/word";
  table("embedding/word", "embedding", text.vocab, text.hidden);
  table("notes", "notes", text.vocab, text.hidden);
  add_marks(blueprint,
            {blueprint.blocks.back().border[0], {"marks", kMarks, kSourceHidden}});
  add_decoder(blueprint);
  blueprint.check();
  return blueprint;
}

template <class T>
std::unique_ptr<model::Block<T>> make_encoder_decoder_block(const Making<T>& making) {
  const std::string& kind = making.spec().kind;
  if (kind == "words") return std::make_unique<WordsBlock<T>>(making);
  if (kind == "mlp") return std::make_unique<MlpBlock<T>>(making);
  if (kind == "meet") return std::make_unique<MeetBlock<T>>(making);
  if (kind == "gather") return std::make_unique<GatherBlock<T>>(making);
  if (kind == "classify") return std::make_unique<ClassifyBlock<T>>(making);
  if (kind == "pool") return std::make_unique<PoolBlock<T>>(making);
  if (kind == "classes") return std::make_unique<ClassesBlock<T>>(making);
  return model::make_block<T>(making);
}

template std::unique_ptr<model::Block<float>> make_encoder_decoder_block<float>(
    const Making<float>&);
template std::unique_ptr<model::Block<double>> make_encoder_decoder_block<double>(
    const Making<double>&);

}  // namespace trireme::test

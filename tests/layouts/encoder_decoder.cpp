// layouts/encoder_decoder.cpp — see encoder_decoder.hpp. A block of its own has a class
// here, with a slot for each micro-batch in flight; kernels are functions above it.
#include "layouts/encoder_decoder.hpp"

#include <vector>

#include "base/error.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/dropout.hpp"
#include "kernels/reductions.hpp"
#include "nn/mlp.hpp"

namespace trireme::test {

namespace {

using model::BlockSpec;
using model::Making;
using model::Tensors;
using nn::as_const;
using nn::WeightPass;

constexpr int kText = 0, kSource = 1;  // streams; and what a 'meet' block reads

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
  void decode(const nn::Context&, nn::KvCache<T>*, const Tensors<T>&,
              const Tensors<T>&) const override {
    throw Error("this kind of model generates no text");
  }
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
        words_(making.table().words) {
    making.builder.registry.begin_unit(making.spec().name, making.table().unit);
  }

  void set_slot_count(int slots) override { d_y_.resize(extent(slots)); }

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>& out) override {
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

// y = x + mlp(x).
template <class T>
class MlpBlock final : public TestBlock<T> {
 public:
  explicit MlpBlock(const Making<T>& making)
      : mlp_(begin_unit(making), making.spec().name,
             {.layers = 1,
              .hidden = kSourceHidden,
              .ffn_hidden = making.blueprint.architecture.hidden,
              .init_std = making.blueprint.architecture.init_std}) {}

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

// Rows are position r / b of sample r % b. mean (b, c): of x (rows, c) over the positions
// of each sample that are real, as far as they are among these rows, the first of which
// is at position `begin`.
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
  static void sum_over_sequence(const nn::Context& context, const View2<T>& x,
                                comm::Site site) {
    if (!context.sequence_parallel) return;
    context.groups.tensor->all_reduce(context.exec, comm::span_of(x), comm::Op::sum,
                                      site);
  }

  bool passes_;       // `memory` goes on
  ParamRef<T> gate_;  // (h)
  std::vector<Slot> slots_;
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
    block.flops = gpt.blocks[1].flops;
  }
  if (is_last || count == 2) {
    std::erase_if(block.border, [](const auto& of) { return of.name == "memory"; });
  }
  return block;
}

}  // namespace

model::Blueprint encoder_decoder(const model::Architecture& text) {
  const model::Border memory = {{"memory", kSource, kSourceHidden}};
  // What a block reads does not stand first here.
  const model::Border both = {memory[0], {"text", kText, text.hidden}};
  const model::Blueprint gpt = model::make_blueprint(text);
  model::Blueprint blueprint{
      .architecture = text,
      .batch = {.streams = {{"text", text.sequence, "positions"},
                            {.name = "source",
                             .sequence = kSourceSequence,
                             .lengths = "source_lengths"}},
                .fields = {{"tokens"},
                           {"positions"},
                           {"labels"},
                           {"loss_mask", DType::float32},
                           {.name = "source", .stream = kSource},
                           {.name = "source_lengths", .per = Per::sample}}},
      .objectives = {{.name = "loss", .mask = "loss_mask", .labels = "labels"}},
      .vocabulary = "embedding/word"};
  blueprint.blocks.push_back({.kind = "words",
                              .name = "encoder/words",
                              .border = memory,
                              .makes = {"memory"},
                              .fields = {"source"},
                              .table = "encoder/word",
                              .stream = kSource});
  const index_t encoder = text.layers / 3, decoder = text.layers - encoder;
  for (index_t i = 0; i < encoder; ++i) {
    blueprint.blocks.push_back(
        {.kind = "mlp",
         .name = fmt::format("encoder/{}", i),
         .is_layer = true,
         .number = i,
         .border = memory,
         .reads = {"memory"},
         .makes = {"memory"},
         .stream = kSource,
         .parameters = 2 * kSourceHidden * text.hidden + text.hidden + kSourceHidden,
         .flops = {.per_token = 4.0 * kSourceHidden * static_cast<double>(text.hidden)}});
  }
  blueprint.blocks.push_back({.kind = "embedding",
                              .name = "embedding",
                              .border = both,
                              .makes = {"text"},
                              .fields = {"tokens", "positions"},
                              .table = "embedding/word",
                              .parameters = gpt.blocks.front().parameters});
  for (index_t i = 0; i < decoder; ++i) {
    blueprint.blocks.push_back(decoder_layer(blueprint, gpt, i, decoder));
  }
  blueprint.blocks.push_back({.kind = "head",
                              .name = "head",
                              .reads = {"text"},
                              .fields = {"labels", "loss_mask"},
                              .table = "embedding/word",
                              .parameters = gpt.blocks.back().parameters,
                              .flops = gpt.blocks.back().flops,
                              .objective = 0,
                              .gradients_in_forward = true});
  const auto table = [&](const char* name, const char* unit, index_t rows,
                         index_t columns) {
    blueprint.tables.push_back({name, unit, rows, columns, text.init_std});
  };
  table("encoder/word", "encoder/word", kSourceVocabulary, kSourceHidden);
  table("embedding/word", "embedding", text.vocab, text.hidden);
  table("notes", "notes", text.vocab, text.hidden);
  blueprint.check();
  return blueprint;
}

template <class T>
std::unique_ptr<model::Block<T>> make_encoder_decoder_block(const Making<T>& making) {
  const std::string& kind = making.spec().kind;
  if (kind == "words") return std::make_unique<WordsBlock<T>>(making);
  if (kind == "mlp") return std::make_unique<MlpBlock<T>>(making);
  if (kind == "meet") return std::make_unique<MeetBlock<T>>(making);
  return model::make_block<T>(making);
}

template std::unique_ptr<model::Block<float>> make_encoder_decoder_block<float>(
    const Making<float>&);
template std::unique_ptr<model::Block<double>> make_encoder_decoder_block<double>(
    const Making<double>&);

}  // namespace trireme::test

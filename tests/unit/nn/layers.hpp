// tests/unit/nn/layers.hpp — every layer of src/nn, and the whole GPT, behind one
// interface: y = f(x; parameters), or a loss added to the bench's totals.
//
// Biases that a layer leaves to what follows it are added here, as its users do, and
// their gradients are summed here.
#ifndef TRIREME_TESTS_UNIT_NN_LAYERS_HPP_
#define TRIREME_TESTS_UNIT_NN_LAYERS_HPP_

#include <type_traits>

#include "kernels/dropout.hpp"
#include "kernels/reductions.hpp"
#include "nn/lm_head.hpp"
#include "nn/transformer_layer.hpp"
#include "nn/word_loss.hpp"
#include "unit/nn/layer_bench.hpp"

namespace trireme::test {

template <class T>
struct Layer {
  index_t in = 0, out = 0;  // columns of this rank's x and y; 0: there is none
  bool splits_x = false, splits_y = false;  // over the tensor group
  std::function<void(const nn::Context&, View2<const T> x, View2<T> y)> forward;
  std::function<void(const nn::Context&, View2<const T> d_y, View2<T> d_x)>
      backward_input;
  std::function<void(const nn::Context&)> backward_weight;

  // Forward, backward_input, backward_weight; x and d_y may be null on shapes alone.
  void pass(const nn::Context& context, View2<const T> x, View2<T> y, View2<const T> d_y,
            View2<T> d_x) const {
    forward(context, x, y);
    backward_input(context, d_y, d_x);
    backward_weight(context);
  }
};

template <class T>
struct NamedLayer {
  const char* name;
  bool has_dropout;
  Layer<T> (*make)(LayerBench<T>& bench, double dropout);
};

namespace detail {

template <class T>
void add_bias(const nn::Context& context, View1<const T> bias, View2<T> y) {
  kernels::bias_dropout_add_forward<T>(context.exec, {.batch = context.samples()},
                                       context.step, nn::as_const(y), bias, {}, y);
}

template <class T>
void forward(const nn::Context& context, const nn::ColumnParallelLinear<T>& layer,
             View2<const T> x, View2<T> y) {
  layer.forward(context, x, y);
}
template <class T>
void forward(const nn::Context& context, const nn::RowParallelLinear<T>& layer,
             View2<const T> x, View2<T> y) {
  layer.forward(context, x, y);
  add_bias(context, layer.bias(), y);
}

// Sums over blocks of rows of d_y, in context.scratch.
template <class T>
View2<const Accumulator<T>> bias_partials(const nn::Context& context,
                                          View2<const T> d_y) {
  const auto partials = context.scratch.matrix<Accumulator<T>>(
      Category::gradient,
      kernels::partial_count(static_cast<index_t>(d_y.extent(0)),
                             static_cast<index_t>(d_y.extent(1))),
      static_cast<index_t>(d_y.extent(1)));
  kernels::bias_dropout_add_backward<T>(context.exec, {.batch = context.samples()},
                                        context.step, d_y, {}, partials);
  return partials;
}

// The two linear layers do each half of what surrounds a product.
template <class T>
void backward_input(const nn::Context& context, const nn::ColumnParallelLinear<T>& layer,
                    View2<const T> d_y, View2<T> d_x) {
  layer.start_backward_input(context, d_y, d_x).wait(context.exec);
}
template <class T>
void backward_input(const nn::Context& context, const nn::RowParallelLinear<T>& layer,
                    View2<const T> d_y, View2<T> d_x) {
  layer.backward_input(context, d_y, d_x);
}
template <class T>
void backward_weight(const nn::Context& context, const nn::ColumnParallelLinear<T>& layer,
                     View2<const T> d_y, View2<const T> x) {
  const ArenaScope scope(context.scratch);
  layer.backward_weight(context, d_y, layer.start_weight_input(context, x));
  nn::PartialGradients<T> gradients;
  layer.backward_bias(bias_partials(context, d_y), gradients);
  gradients.add_all(context.exec);
}
template <class T>
void backward_weight(const nn::Context& context, const nn::RowParallelLinear<T>& layer,
                     View2<const T> d_y, View2<const T> x) {
  const ArenaScope scope(context.scratch);
  layer.backward_weight(context, d_y, x);
  nn::PartialGradients<T> gradients;
  layer.backward_bias(bias_partials(context, d_y), gradients);
  gradients.add_all(context.exec);
}

// The parts of a Transformer layer begin their input gradients, the layer completes its.
template <class T, class Parts>
void backward_input_of_parts(const nn::Context& context, Parts& parts, View2<const T> d_y,
                             View2<T> d_x) {
  if constexpr (std::is_same_v<decltype(parts.layer), nn::Mlp<T>> ||
                std::is_same_v<decltype(parts.layer), nn::Attention<T>>) {
    parts.layer.start_backward_input(context, d_y, parts.saved, d_x, parts.held)
        .wait(context.exec);
  } else {
    parts.layer.backward_input(context, d_y, parts.saved, d_x, parts.held);
  }
}

template <class T, class Parts>
void backward_weight_of_parts(const nn::Context& context, const Parts& parts) {
  using Block = decltype(parts.layer);
  if constexpr (std::is_same_v<Block, nn::TransformerLayer<T>>) {
    parts.layer.backward_weight(context, parts.saved, parts.held);
  } else {
    nn::PartialGradients<T> gradients;
    if constexpr (std::is_same_v<Block, nn::Attention<T>>) {
      parts.layer.backward_weight(context, parts.saved, parts.held,
                                  parts.layer.take_bias_sums(context, context.scratch),
                                  gradients);
    } else {
      parts.layer.backward_weight(context, parts.saved, parts.held, gradients);
    }
    parts.layer.backward_output_bias(bias_partials(context, parts.d_y), gradients);
    gradients.add_all(context.exec);
  }
}

// ColumnParallelLinear and RowParallelLinear; their backward_weight wants x and d_y.
template <class T, class Linear>
Layer<T> linear(Linear layer, index_t in, index_t out) {
  struct Parts {
    Linear layer;
    View2<const T> x, d_y;
  };
  const auto parts = std::make_shared<Parts>(Parts{std::move(layer), {}, {}});
  return {.in = in,
          .out = out,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T> y) {
                parts->x = x;
                forward(context, parts->layer, x, y);
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T> d_y, View2<T> d_x) {
                parts->d_y = d_y;
                backward_input(context, parts->layer, d_y, d_x);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                backward_weight(context, parts->layer, parts->d_y, parts->x);
              }};
}

// Mlp, Attention and TransformerLayer: Saved and Held; an output bias is added here.
template <class T, class Block>
Layer<T> block(Block made) {
  constexpr bool kLeavesBias = !std::is_same_v<Block, nn::TransformerLayer<T>>;
  struct Parts {
    Block layer;
    View2<const T> d_y;
    typename Block::Saved saved;
    typename Block::Held held;
  };
  const auto parts = std::make_shared<Parts>(Parts{std::move(made), {}, {}, {}});
  return {.in = kHidden,
          .out = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T> y) {
                parts->layer.forward(context, x, y, parts->saved);
                if constexpr (kLeavesBias) {
                  add_bias(context, parts->layer.output_bias(), y);
                }
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T> d_y, View2<T> d_x) {
                parts->d_y = d_y;
                backward_input_of_parts(context, *parts, d_y, d_x);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                const ArenaScope scope(context.scratch);
                backward_weight_of_parts<T>(context, *parts);
              }};
}

}  // namespace detail

template <class T>
Layer<T> column_linear(LayerBench<T>& bench, double) {
  const index_t ranks = bench.groups.tensor->size();
  auto layer = detail::linear<T>(
      nn::ColumnParallelLinear<T>(bench.builder(), "linear", kHidden, kFfnHidden,
                                  {.init = Initializer::normal(0.02)}),
      kHidden, kFfnHidden / ranks);
  layer.splits_y = true;
  return layer;
}

template <class T>
Layer<T> row_linear(LayerBench<T>& bench, double) {
  const index_t ranks = bench.groups.tensor->size();
  auto layer = detail::linear<T>(
      nn::RowParallelLinear<T>(bench.builder(), "linear", kFfnHidden, kHidden,
                               {.init = Initializer::normal(0.02)}),
      kFfnHidden / ranks, kHidden);
  layer.splits_x = true;
  return layer;
}

template <class T>
Layer<T> layer_norm(LayerBench<T>& bench, double) {
  struct Parts {
    nn::Norm<T> layer;
    typename nn::Norm<T>::Saved saved;
    View2<const T> d_y;
  };
  const auto parts = std::make_shared<Parts>(
      Parts{nn::Norm<T>(bench.builder(), "norm", kHidden), {}, {}});
  return {.in = kHidden,
          .out = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T> y) {
                parts->layer.forward(context, x, y, parts->saved);
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T> d_y, View2<T> d_x) {
                parts->d_y = d_y;
                parts->layer.backward_input(context, d_y, parts->saved, {}, d_x);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->layer.backward_weight(context, parts->d_y, parts->saved);
              }};
}

inline config::ModelConfig transformer_config(double dropout) {
  return {.layers = kLayers,
          .hidden = kHidden,
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_size = kHeadSize,
          .ffn_hidden = kFfnHidden,
          .sequence = kLongest,
          .dropout = dropout,
          .attention_dropout = dropout};
}

template <class T>
Layer<T> mlp(LayerBench<T>& bench, double) {
  return detail::block<T>(
      nn::Mlp<T>(bench.builder(), "mlp", nn::mlp_form(transformer_config(0.0))));
}

template <class T>
Layer<T> attention(LayerBench<T>& bench, double dropout) {
  return detail::block<T>(nn::Attention<T>(
      bench.builder(), "attention", nn::attention_form(transformer_config(dropout), 3)));
}

template <class T>
Layer<T> transformer_layer(LayerBench<T>& bench, double dropout) {
  return detail::block<T>(nn::TransformerLayer<T>(
      bench.builder(), nn::layer_form(transformer_config(dropout), 1)));
}

template <class T>
Layer<T> embedding(LayerBench<T>& bench, double dropout) {
  struct Parts {
    nn::Embedding<T> layer;
    typename nn::Embedding<T>::Saved saved;
    View2<const T> d_y;
    static typename nn::Embedding<T>::Ids ids(const nn::Context& context) {
      return {context.ids(0), context.ids(1)};
    }
  };
  const auto parts = std::make_shared<Parts>(Parts{
      nn::Embedding<T>(bench.builder(),
                       {.hidden = kHidden, .places = kLongest, .dropout = dropout},
                       {bench.builder(), "embedding/word", kVocabulary, kHidden, 0.02}),
      {},
      {}});
  return {.out = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T>, View2<T> y) {
                parts->layer.forward(context, Parts::ids(context), y, parts->saved);
              },
          .backward_input = [parts](const nn::Context&, View2<const T> d_y,
                                    View2<T>) { parts->d_y = d_y; },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->layer.backward_weight(context, Parts::ids(context), parts->d_y,
                                             parts->saved);
              }};
}

// With the word embedding it is tied to; its loss goes to bench.totals. `most_rows`:
// whose logits are made at a time; 0: all.
template <class T>
Layer<T> lm_head_by_rows(LayerBench<T>& bench, index_t most_rows) {
  struct Parts {
    Parts(LayerBench<T>& bench, index_t most_rows)
        : word(bench.builder(), "embedding/word", kVocabulary, kHidden, 0.02),
          layer(bench.builder(), {.hidden = kHidden, .most_rows = most_rows}, word) {}
    nn::VocabParallelEmbedding<T> word;
    nn::LmHead<T> layer;
    typename nn::LmHead<T>::Saved saved;
  };
  const auto parts = std::make_shared<Parts>(bench, most_rows);
  return {.in = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T>) {
                parts->layer.forward(context, x, context.ids(2), context.weights(3),
                                     context.totals, parts->saved);
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T>, View2<T> d_x) {
                parts->layer.backward_input(context, parts->saved, d_x);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->layer.backward_weight(context, parts->saved);
              }};
}
template <class T>
Layer<T> lm_head(LayerBench<T>& bench, double) {
  return lm_head_by_rows(bench, 0);
}
// Three parts, of 4, 4 and 2 rows.
template <class T>
Layer<T> lm_head_in_parts(LayerBench<T>& bench, double) {
  return lm_head_by_rows(bench, 4);
}

// A bias of every word, and a table that the loss has for itself; in parts of 4, 4 and 2
// rows.
template <class T>
Layer<T> word_loss(LayerBench<T>& bench, double) {
  struct Parts {
    explicit Parts(LayerBench<T>& bench)
        : word(bench.builder(), "head/word", kVocabulary, kHidden, 0.02),
          layer(bench.builder(), word, {.most_rows = 4, .bias = "head/bias"}) {}
    nn::VocabParallelEmbedding<T> word;
    nn::WordLoss<T> layer;
    typename nn::WordLoss<T>::Saved saved;
  };
  const auto parts = std::make_shared<Parts>(bench);
  return {.in = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T>) {
                parts->layer.forward(context, x, context.ids(2), context.weights(3),
                                     context.totals, parts->saved);
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T>, View2<T> d_x) {
                copy(context.exec, d_x, parts->saved.d_x);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->layer.backward_weight(context, parts->saved);
              }};
}

// The whole model in one chunk.
template <class T>
Layer<T> gpt(LayerBench<T>& bench, double dropout) {
  struct Parts {
    Parts(LayerBench<T>& bench, double dropout)
        : blueprint(model::make_blueprint(small_gpt(dropout))),
          chunk(bench.builder(), blueprint, blueprint.whole()) {}
    model::Blueprint blueprint;
    model::Chunk<T> chunk;
  };
  const auto parts = std::make_shared<Parts>(bench, dropout);
  return {.forward = [parts](const nn::Context& context, View2<const T>,
                             View2<T>) { parts->chunk.forward(context, 0, {}, {}); },
          .backward_input =
              [parts](const nn::Context& context, View2<const T>, View2<T>) {
                parts->chunk.backward(context, 0, {}, {}, model::WeightPass::later);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->chunk.backward_weight(context, 0);
              }};
}

template <class T>
std::vector<NamedLayer<T>> all_layers() {
  return {{"ColumnLinear", false, column_linear<T>},
          {"RowLinear", false, row_linear<T>},
          {"LayerNorm", false, layer_norm<T>},
          {"Mlp", false, mlp<T>},
          {"Attention", true, attention<T>},
          {"TransformerLayer", true, transformer_layer<T>},
          {"Embedding", true, embedding<T>},
          {"LmHead", false, lm_head<T>},
          {"LmHeadInParts", false, lm_head_in_parts<T>},
          {"WordLoss", false, word_loss<T>},
          {"Gpt", true, gpt<T>}};
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_NN_LAYERS_HPP_

// tests/unit/nn/kind_layers.hpp — what other kinds of model than GPT are made of, as
// layers under test (layers.hpp): BERT's and T5's.
//
// Cross attention reads its own x as the encoder's output, so that the gradient of both
// is looked at as one.
#ifndef TRIREME_TESTS_UNIT_NN_KIND_LAYERS_HPP_
#define TRIREME_TESTS_UNIT_NN_KIND_LAYERS_HPP_

#include "kernels/initialize.hpp"
#include "kernels/relative_bias.hpp"
#include "nn/cross_attention.hpp"
#include "nn/dropout.hpp"
#include "nn/masked_head.hpp"
#include "nn/pair_head.hpp"
#include "nn/post_norm_layer.hpp"
#include "nn/relative_bias.hpp"
#include "unit/nn/layers.hpp"

namespace trireme::test {

namespace detail {

// Streams know where their samples end.
inline nn::Context with_lengths(const nn::Context& context) {
  nn::Context other = context;
  other.batch.streams[0].lengths = kLengthsField;
  return other;
}

inline nn::AttentionForm form_of_kind(double dropout, kernels::MaskKind mask) {
  nn::AttentionForm form = nn::attention_form(transformer_config(dropout), 3);
  form.mask = mask;
  form.begins = kBeginsField;
  form.ends = kEndsField;
  return form;
}

template <class T>
nn::RelativeBias<T> relative_bias(LayerBench<T>& bench,
                                  kernels::RelativeDirections directions) {
  const int size = bench.groups.tensor->size(), rank = bench.groups.tensor->rank();
  return {bench.builder().add({.name = "relative_bias/weight",
                               .shard = split({8, kHeads}, 1, size, rank),
                               .init = Initializer::normal(0.3),
                               .decay = true}),
          kernels::RelativeBuckets(8, 5, directions)};
}

// T5's: RMS norms, gates, no biases, a scale of its own.
inline nn::LayerForm t5_form(double dropout, kernels::MaskKind mask) {
  config::ModelConfig config = transformer_config(dropout);
  config.norm = config::Norm::rmsnorm;
  config.activation = config::Activation::geglu_tanh;
  config.bias = false;
  nn::LayerForm form = nn::layer_form(config, 1);
  form.attention.mask = mask;
  form.attention.scale = 0.3;  // other than 1 / sqrt(d)
  return form;
}

// Runs `layer` where streams have lengths.
template <class T>
Layer<T> of_ragged_samples(Layer<T> layer) {
  Layer<T> ragged = layer;
  ragged.forward = [layer](const nn::Context& context, View2<const T> x, View2<T> y) {
    layer.forward(with_lengths(context), x, y);
  };
  ragged.backward_input = [layer](const nn::Context& context, View2<const T> d_y,
                                  View2<T> d_x) {
    layer.backward_input(with_lengths(context), d_y, d_x);
  };
  ragged.backward_weight = [layer](const nn::Context& context) {
    layer.backward_weight(with_lengths(context));
  };
  return ragged;
}

// The first of the mask's weights.
inline View1<const float> pair_weights(const nn::Context& context) {
  return {context.weights(3).data(), extent(kSamples)};
}
// The first of the types.
inline View1<const std::int32_t> pair_labels(const nn::Context& context) {
  return {context.ids(kTypesField).data(), extent(kSamples)};
}

// d_x of what reads x in two ways: `run` writes one gradient, and adds to the other.
template <class T, class Run>
void both_gradients(const nn::Context& context, View2<T> d_x, const Run& run) {
  const ArenaScope scope(context.scratch);
  const auto d_memory =
      context.scratch.matrix<T>(Category::gradient, context.local_rows(), kHidden);
  kernels::fill(context.exec, View1<T>(d_memory.data(), extent(kRows * kHidden)), T{0});
  run(nn::MemoryGradient<T>{d_memory, kernels::Accumulate::yes});
  nn::add_rows<T>(context, nn::as_const(d_memory), d_x);
}

}  // namespace detail

template <class T>
Layer<T> rms_norm(LayerBench<T>& bench, double) {
  return norm_of_form(bench, {.kind = kernels::NormKind::rms, .epsilon = 1e-6});
}

template <class T>
Layer<T> erf_mlp(LayerBench<T>& bench, double) {
  config::ModelConfig config = transformer_config(0.0);
  config.activation = config::Activation::gelu;
  return detail::block<T>(nn::Mlp<T>(bench.builder(), "mlp", nn::mlp_form(config)));
}
template <class T>
Layer<T> gated_mlp(LayerBench<T>& bench, double) {
  config::ModelConfig config = transformer_config(0.0);
  config.activation = config::Activation::geglu;
  return detail::block<T>(nn::Mlp<T>(bench.builder(), "mlp", nn::mlp_form(config)));
}

template <class T>
Layer<T> padded_attention(LayerBench<T>& bench, double dropout) {
  return detail::of_ragged_samples(detail::block<T>(
      nn::Attention<T>(bench.builder(), "attention",
                       detail::form_of_kind(dropout, kernels::MaskKind::padding))));
}
template <class T>
Layer<T> segment_attention(LayerBench<T>& bench, double dropout) {
  return detail::block<T>(
      nn::Attention<T>(bench.builder(), "attention",
                       detail::form_of_kind(dropout, kernels::MaskKind::segment)));
}
template <class T>
Layer<T> biased_attention(LayerBench<T>& bench, double dropout) {
  auto bias = detail::relative_bias(bench, kernels::RelativeDirections::both);
  return detail::of_ragged_samples(detail::block<T>(nn::Attention<T>(
      bench.builder(), "attention",
      detail::form_of_kind(dropout, kernels::MaskKind::padding), std::move(bias))));
}

template <class T>
Layer<T> cross_attention(LayerBench<T>& bench, double dropout) {
  struct Parts {
    nn::CrossAttention<T> layer;
    typename nn::CrossAttention<T>::Saved saved;
    typename nn::CrossAttention<T>::Held held;
    View2<const T> d_y;
  };
  nn::AttentionForm form = detail::form_of_kind(dropout, kernels::MaskKind::padding);
  form.key_stream = 0;
  form.site = random::Site::cross_attention_probabilities;
  const auto parts = std::make_shared<Parts>(
      Parts{nn::CrossAttention<T>(bench.builder(), "cross", form), {}, {}, {}});
  return detail::of_ragged_samples<T>(
      {.in = kHidden,
       .out = kHidden,
       .forward =
           [parts](const nn::Context& context, View2<const T> x, View2<T> y) {
             parts->layer.forward(context, x, x, y, parts->saved);
             detail::add_bias(context, parts->layer.output_bias(), y);
           },
       .backward_input =
           [parts](const nn::Context& context, View2<const T> d_y, View2<T> d_x) {
             parts->d_y = d_y;
             detail::both_gradients<T>(context, d_x, [&](const auto& d_memory) {
               parts->layer
                   .start_backward_input(context, d_y, parts->saved, d_x, d_memory,
                                         parts->held)
                   .wait(context.exec);
             });
           },
       .backward_weight =
           [parts](const nn::Context& context) {
             const ArenaScope scope(context.scratch);
             nn::PartialGradients<T> gradients;
             parts->layer.backward_weight(
                 context, parts->saved, parts->held,
                 parts->layer.take_bias_sums(context, context.scratch), gradients);
             parts->layer.backward_output_bias(detail::bias_partials(context, parts->d_y),
                                               gradients);
             gradients.add_all(context.exec);
           }});
}

template <class T>
Layer<T> encoder_layer(LayerBench<T>& bench, double dropout) {
  auto bias = detail::relative_bias(bench, kernels::RelativeDirections::both);
  return detail::of_ragged_samples(detail::block<T>(nn::TransformerLayer<T>(
      bench.builder(), detail::t5_form(dropout, kernels::MaskKind::padding),
      std::move(bias))));
}

template <class T>
Layer<T> decoder_layer(LayerBench<T>& bench, double dropout) {
  struct Parts {
    nn::TransformerLayer<T> layer;
    typename nn::TransformerLayer<T>::Saved saved;
    typename nn::TransformerLayer<T>::Held held;
  };
  auto bias = detail::relative_bias(bench, kernels::RelativeDirections::past);
  nn::LayerForm form = detail::t5_form(dropout, kernels::MaskKind::causal);
  form.cross = form.attention;
  form.cross->mask = kernels::MaskKind::padding;
  form.cross->key_stream = 0;
  form.cross->site = random::Site::cross_attention_probabilities;
  const auto parts = std::make_shared<Parts>(
      Parts{nn::TransformerLayer<T>(bench.builder(), form, std::move(bias)), {}, {}});
  return detail::of_ragged_samples<T>(
      {.in = kHidden,
       .out = kHidden,
       .forward =
           [parts](const nn::Context& context, View2<const T> x, View2<T> y) {
             parts->layer.forward(context, x, y, parts->saved, x);
           },
       .backward_input =
           [parts](const nn::Context& context, View2<const T> d_y, View2<T> d_x) {
             detail::both_gradients<T>(context, d_x, [&](const auto& d_memory) {
               parts->layer.backward_input(context, d_y, parts->saved, d_x, parts->held,
                                           nn::WeightPass::later, {}, d_memory);
             });
           },
       .backward_weight =
           [parts](const nn::Context& context) {
             parts->layer.backward_weight(context, parts->saved, parts->held);
           }});
}

template <class T>
Layer<T> post_norm_layer(LayerBench<T>& bench, double dropout) {
  nn::LayerForm form = nn::layer_form(transformer_config(dropout), 1);
  form.attention.mask = kernels::MaskKind::padding;
  return detail::of_ragged_samples(
      detail::block<T>(nn::PostNormLayer<T>(bench.builder(), form)));
}

template <class T>
Layer<T> typed_embedding(LayerBench<T>& bench, double dropout) {
  return embedding_of_form(bench, {.hidden = kHidden,
                                   .places = kLongest,
                                   .types = 2,
                                   .norm = nn::NormForm{},
                                   .dropout = dropout});
}
template <class T>
Layer<T> word_embedding(LayerBench<T>& bench, double dropout) {
  return embedding_of_form(bench, {.hidden = kHidden, .dropout = dropout});
}

// T5's: RMS norm, dropout and a factor before the table.
template <class T>
Layer<T> scaled_lm_head(LayerBench<T>& bench, double dropout) {
  return lm_head_of_form(bench, {.hidden = kHidden,
                                 .norm = {.kind = kernels::NormKind::rms},
                                 .dropout = dropout,
                                 .factor = 0.4});
}

template <class T>
Layer<T> masked_head(LayerBench<T>& bench, double) {
  struct Parts {
    explicit Parts(LayerBench<T>& bench)
        : word(bench.builder(), "embedding/word", kVocabulary, kHidden, 0.02),
          layer(builder_of_few(bench), "masked_head", {.hidden = kHidden}, word) {}
    static nn::Builder<T> builder_of_few(LayerBench<T>& bench) {
      nn::Builder<T> builder = bench.builder();
      builder.is_split = false;
      return builder;
    }
    static nn::Context here(const nn::Context& context) {
      return context.on_stream(kFewStream);
    }
    static typename nn::MaskedHead<T>::Fields fields(const nn::Context& context) {
      return {context.ids(kFewPositionsField), context.ids(kFewLabelsField),
              context.weights(kFewWeightsField)};
    }
    nn::VocabParallelEmbedding<T> word;
    nn::MaskedHead<T> layer;
    typename nn::MaskedHead<T>::Saved saved;
    typename nn::MaskedHead<T>::Held held;
  };
  const auto parts = std::make_shared<Parts>(bench);
  return {.in = kHidden,
          .forward =
              [parts](const nn::Context& context, View2<const T> x, View2<T>) {
                parts->layer.forward(Parts::here(context), x, Parts::fields(context),
                                     context.totals, parts->saved);
              },
          .backward_input =
              [parts](const nn::Context& context, View2<const T>, View2<T> d_x) {
                parts->layer.backward_input(Parts::here(context), Parts::fields(context),
                                            parts->saved, kernels::Accumulate::no, d_x,
                                            parts->held);
              },
          .backward_weight =
              [parts](const nn::Context& context) {
                parts->layer.backward_weight(Parts::here(context), parts->saved,
                                             parts->held);
              }};
}

template <class T>
Layer<T> pair_head(LayerBench<T>& bench, double) {
  struct Parts {
    explicit Parts(LayerBench<T>& bench)
        : layer(bench.builder(), "pair_head", {.hidden = kHidden}) {}
    nn::PairHead<T> layer;
    typename nn::PairHead<T>::Saved saved;
    typename nn::PairHead<T>::Held held;
  };
  const auto parts = std::make_shared<Parts>(bench);
  return {
      .in = kHidden,
      .forward =
          [parts](const nn::Context& context, View2<const T> x, View2<T>) {
            parts->layer.forward(
                context, x, {detail::pair_labels(context), detail::pair_weights(context)},
                context.totals, parts->saved);
          },
      .backward_input =
          [parts](const nn::Context& context, View2<const T>, View2<T> d_x) {
            parts->layer.backward_input(
                context, {detail::pair_labels(context), detail::pair_weights(context)},
                parts->saved, kernels::Accumulate::no, d_x, parts->held);
          },
      .backward_weight =
          [parts](const nn::Context& context) {
            parts->layer.backward_weight(context, parts->saved, parts->held);
          }};
}

template <class T>
std::vector<NamedLayer<T>> layers_of_kinds() {
  return {{"RmsNorm", false, rms_norm<T>},
          {"ErfMlp", false, erf_mlp<T>},
          {"GatedMlp", false, gated_mlp<T>},
          {"PaddedAttention", true, padded_attention<T>},
          {"SegmentAttention", true, segment_attention<T>},
          {"BiasedAttention", true, biased_attention<T>},
          {"CrossAttention", true, cross_attention<T>},
          {"EncoderLayer", true, encoder_layer<T>},
          {"DecoderLayer", true, decoder_layer<T>},
          {"PostNormLayer", true, post_norm_layer<T>},
          {"TypedEmbedding", true, typed_embedding<T>},
          {"WordEmbedding", true, word_embedding<T>},
          {"ScaledLmHead", true, scaled_lm_head<T>},
          {"MaskedHead", false, masked_head<T>},
          {"PairHead", false, pair_head<T>}};
}

template <class T>
std::vector<NamedLayer<T>> layers_of_all_kinds() {
  std::vector<NamedLayer<T>> layers = all_layers<T>();
  for (const NamedLayer<T>& layer : layers_of_kinds<T>()) layers.push_back(layer);
  return layers;
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_NN_KIND_LAYERS_HPP_

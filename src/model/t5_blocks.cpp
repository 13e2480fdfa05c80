// model/t5_blocks.cpp — T5's blocks: what its layers, embeddings and head have else than
// GPT's. Initial values are those of Mesh TensorFlow and Hugging Face (T5Config,
// initializer_factor 1): scores are not scaled by 1 / sqrt(d), queries begin smaller
// instead.
//
// Dropout outside of layers has the site of an embedding, and the layer numbers of none:
// of a stack's words that of the layer behind them, of a stack's final norm one behind
// all layers of the model.
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "base/types.hpp"
#include "kernels/relative_bias.hpp"
#include "model/block.hpp"
#include "model/layer_blocks.hpp"
#include "model/t5.hpp"
#include "model/word_blocks.hpp"
#include "nn/layer_form.hpp"
#include "nn/relative_bias.hpp"

namespace trireme::model {

namespace {

double inverse_root(index_t columns) {
  return 1.0 / std::sqrt(static_cast<double>(columns));
}

// Without the mask, the lengths and the number.
nn::AttentionForm t5_attention_form(const Architecture& a, index_t layer) {
  nn::AttentionForm form = nn::attention_form(a, layer);
  form.scale = 1.0;
  form.key_std = form.value_std = inverse_root(a.hidden);
  form.query_std = inverse_root(a.hidden * a.head_elements());
  form.output_std = inverse_root(a.heads * a.head_elements());
  return form;
}

nn::LayerForm t5_layer_form(const Blueprint& blueprint, const BlockSpec& spec) {
  const Architecture& a = blueprint.architecture;
  const bool is_decoder = spec.stream == kTarget;
  const index_t layer = spec.number + (is_decoder ? a.layers : 0);
  const index_t sequence = is_decoder ? a.decoder_sequence : a.sequence;
  nn::LayerForm form = nn::layer_form(a, layer);
  form.name = spec.name;
  form.attention = t5_attention_form(a, layer);
  form.attention.mask = spec.attention.at(0).mask;
  form.attention.queries = form.attention.keys = sequence;
  form.mlp.in_std = inverse_root(a.hidden);
  form.mlp.out_std = inverse_root(a.ffn_hidden);
  if (!is_decoder) return form;
  nn::AttentionForm cross = t5_attention_form(a, layer);
  cross.mask = spec.attention.at(1).mask;
  cross.queries = sequence;
  cross.keys = a.sequence;
  cross.site = random::Site::cross_attention_probabilities;
  cross.key_stream = kSource;
  form.cross = cross;
  return form;
}

template <class T>
std::unique_ptr<Block<T>> make_t5_layer(const Making<T>& making) {
  const Blueprint& blueprint = making.blueprint;
  const Architecture& a = blueprint.architecture;
  const bool is_decoder = making.spec().stream == kTarget;
  const kernels::RelativeBuckets buckets(
      a.relative_attention_num_buckets, a.relative_attention_max_distance,
      is_decoder ? kernels::RelativeDirections::past : kernels::RelativeDirections::both);
  return std::make_unique<LayerBlock<T>>(
      making, t5_layer_form(blueprint, making.spec()),
      nn::RelativeBias<T>(making.table().weight, buckets));
}

nn::EmbeddingForm t5_embedding_form(const Blueprint& blueprint, const BlockSpec& spec) {
  const Architecture& a = blueprint.architecture;
  return {.name = spec.name,
          .hidden = a.hidden,
          .dropout = a.dropout,
          .layer = static_cast<std::uint16_t>(spec.stream == kTarget ? a.layers : 0)};
}

std::uint16_t layer_of_final_norm(const Architecture& a, int stream) {
  return static_cast<std::uint16_t>(a.total_layers() + stream);
}

nn::LmHeadForm t5_head_form(const Architecture& a) {
  return {.hidden = a.hidden,
          .norm = nn::norm_form(a),
          .dropout = a.dropout,
          .factor = a.tie_embeddings ? inverse_root(a.hidden) : 1.0,
          .layer = layer_of_final_norm(a, kTarget)};
}

}  // namespace

template <class T>
std::unique_ptr<Block<T>> make_t5_block(const Making<T>& making) {
  const BlockSpec& spec = making.spec();
  const Architecture& a = making.blueprint.architecture;
  if (spec.kind == "t5_layer") return make_t5_layer(making);
  if (spec.kind == "t5_embedding") {
    return std::make_unique<EmbeddingBlock<T>>(making,
                                               t5_embedding_form(making.blueprint, spec));
  }
  if (spec.kind == "t5_norm") {
    return std::make_unique<NormBlock<T>>(making, nn::norm_form(a), a.dropout,
                                          layer_of_final_norm(a, kSource));
  }
  if (spec.kind == "t5_head") {
    return std::make_unique<HeadBlock<T>>(making, t5_head_form(a));
  }
  return nullptr;
}

#define TRIREME_INSTANTIATE(T) \
  template std::unique_ptr<Block<T>> make_t5_block<T>(const Making<T>&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model

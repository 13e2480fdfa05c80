// nn/layer_form.hpp — which variant of a Transformer layer a model has: what its parts
// are built from. GPT-2's are the defaults that an architecture gives; kinds of models
// change what is theirs (model/bert_blocks.cpp, model/t5_blocks.cpp).
#ifndef TRIREME_NN_LAYER_FORM_HPP_
#define TRIREME_NN_LAYER_FORM_HPP_

#include <cstdint>
#include <optional>
#include <string>

#include "base/random.hpp"
#include "base/types.hpp"
#include "config/deck.hpp"
#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "nn/norm.hpp"

namespace trireme::nn {

struct AttentionForm {
  index_t hidden = 0, heads = 0, kv_heads = 0, head_size = 0;
  // Padding: where the stream of the keys has lengths. Those of the queries' stream count
  // with every mask.
  kernels::MaskKind mask = kernels::MaskKind::causal;
  double scale = 1.0;  // of the scores
  double dropout = 0.0;
  // Positions of a full sample, and the layer's number among all of the model:
  // coordinates of dropout.
  index_t queries = 1, keys = 1;
  std::uint16_t layer = 0;
  random::Site site = random::Site::attention_probabilities;
  int key_stream = -1;         // of cross attention; -1: keys are of the queries' stream
  int begins = -1, ends = -1;  // fields, of the segment mask
  bool has_bias = true;        // of products
  double query_std = 0.02, key_std = 0.02, value_std = 0.02, output_std = 0.02;
};

struct MlpForm {
  index_t hidden = 0, ffn_hidden = 0;
  kernels::Activation activation = kernels::Activation::gelu_tanh;
  // Whether the first product makes twice the columns, of which the first half,
  // activated, gates the second.
  bool is_gated = false;
  bool has_bias = true;
  double in_std = 0.02, out_std = 0.02;
};

struct LayerForm {
  std::string name;         // of its parameters: "layers/3"
  std::uint16_t layer = 0;  // number among all layers of the model, from 0
  index_t hidden = 0;
  double dropout = 0.0;
  NormForm norm = {};
  AttentionForm attention = {};
  std::optional<AttentionForm> cross = {};  // of a decoder behind an encoder
  MlpForm mlp = {};
};

NormForm norm_form(const config::ModelConfig& config);
// Causal self-attention.
AttentionForm attention_form(const config::ModelConfig& config, index_t layer);
MlpForm mlp_form(const config::ModelConfig& config);
// "layers/3" and its like.
LayerForm layer_form(const config::ModelConfig& config, index_t layer);

}  // namespace trireme::nn

#endif  // TRIREME_NN_LAYER_FORM_HPP_

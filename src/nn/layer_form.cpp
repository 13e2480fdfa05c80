// nn/layer_form.cpp — see layer_form.hpp.
#include "nn/layer_form.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"

namespace trireme::nn {

namespace {

kernels::Activation activation_of(config::Activation activation) {
  switch (activation) {
    case config::Activation::gelu_tanh:
    case config::Activation::geglu_tanh:
      return kernels::Activation::gelu_tanh;
    case config::Activation::gelu:
    case config::Activation::geglu:
      return kernels::Activation::gelu_erf;
    case config::Activation::relu:
      return kernels::Activation::relu;
    case config::Activation::swiglu:
      break;
  }
  throw Error(fmt::format("model.activation: {} needs layers that this version lacks",
                          name_of(activation)));
}

}  // namespace

NormForm norm_form(const config::ModelConfig& config) {
  return {.kind = config.norm == config::Norm::rmsnorm ? kernels::NormKind::rms
                                                       : kernels::NormKind::layernorm,
          .epsilon = config.norm_epsilon};
}

AttentionForm attention_form(const config::ModelConfig& config, index_t layer) {
  return {.hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_size = config.head_elements(),
          .scale = 1.0 / std::sqrt(static_cast<double>(config.head_elements())),
          .dropout = config.attention_dropout,
          .queries = config.sequence,
          .keys = config.sequence,
          .layer = static_cast<std::uint16_t>(layer),
          .has_bias = config.bias,
          .query_std = config.init_std,
          .key_std = config.init_std,
          .value_std = config.init_std,
          .output_std = config.output_init_std()};
}

MlpForm mlp_form(const config::ModelConfig& config) {
  return {.hidden = config.hidden,
          .ffn_hidden = config.ffn_hidden,
          .activation = activation_of(config.activation),
          .is_gated = config.is_gated(),
          .has_bias = config.bias,
          .in_std = config.init_std,
          .out_std = config.output_init_std()};
}

LayerForm layer_form(const config::ModelConfig& config, index_t layer) {
  return {.name = fmt::format("layers/{}", layer),
          .layer = static_cast<std::uint16_t>(layer),
          .hidden = config.hidden,
          .dropout = config.dropout,
          .norm = norm_form(config),
          .attention = attention_form(config, layer),
          .mlp = mlp_form(config)};
}

}  // namespace trireme::nn

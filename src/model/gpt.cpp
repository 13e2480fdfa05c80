// model/gpt.cpp — see gpt.hpp.
#include "model/gpt.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

namespace {

// Columns of a layer's queries, keys and values.
index_t qkv_columns(const Architecture& a) {
  return (a.heads + 2 * a.kv_heads) * a.head_elements();
}

ProductFlops layer_products(const Architecture& a) {
  const auto h = static_cast<double>(a.hidden);
  const auto queries = static_cast<double>(a.heads * a.head_elements());
  const double weights = h * static_cast<double>(qkv_columns(a)) + queries * h +
                         (a.is_gated() ? 3 : 2) * h * static_cast<double>(a.ffn_hidden);
  return {.flops = 2 * weights};
}

AttentionSpec layer_attention(const Architecture& a) {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_size = a.head_elements(),
          .mask = kernels::MaskKind::causal};
}

// A norm's parameters, with the bias where there are biases: RMSNorm has none.
index_t norm_parameters(const Architecture& a) {
  return a.hidden * (a.norm == Norm::layernorm && a.bias ? 2 : 1);
}

index_t layer_parameters(const Architecture& a) {
  const index_t bias = a.bias ? 1 : 0;
  const index_t attention = qkv_columns(a) * (a.hidden + bias) +
                            a.hidden * (a.heads * a.head_elements() + bias);
  const index_t mlp = (a.is_gated() ? 2 : 1) * a.ffn_hidden * (a.hidden + bias) +
                      a.hidden * (a.ffn_hidden + bias);
  return attention + mlp + 2 * norm_parameters(a);
}

index_t position_parameters(const Architecture& a) {
  TRIREME_REQUIRE(a.position != Position::relative,
                  "the parameters of relative positions are not known: the number of "
                  "their buckets is not in the configuration");
  return a.position == Position::learned ? a.sequence * a.hidden : index_t{0};
}

}  // namespace

Blueprint gpt_blueprint(const Architecture& a) {
  const Border hidden = {{"hidden", 0, a.hidden}};
  Blueprint blueprint{
      .architecture = a,
      .batch = {.streams = {{"text", a.sequence}},
                .fields = {{.name = "tokens", .below = a.vocab},
                           {.name = "positions", .holds = Holds::places},
                           {.name = "labels", .below = a.vocab},
                           {.name = "loss_mask", .holds = Holds::weights}}},
      .objectives = {{.name = "loss",
                      .weight = 1.0,
                      .mask = "loss_mask",
                      .labels = "labels",
                      .every_word = true}},
      .decoded = {.tokens = "tokens", .positions = "positions"},
      .vocabulary = "embedding/word"};
  blueprint.blocks.push_back({.kind = "embedding",
                              .name = "embedding",
                              .border = hidden,
                              .makes = {"hidden"},
                              .fields = {"tokens", "positions"},
                              .table = "embedding/word",
                              .parameters = position_parameters(a)});
  for (index_t layer = 0; layer < a.layers; ++layer) {
    blueprint.blocks.push_back({.kind = "layer",
                                .name = fmt::format("layers/{}", layer),
                                .is_layer = true,
                                .number = layer,
                                .border = hidden,
                                .reads = {"hidden"},
                                .makes = {"hidden"},
                                .fields = {},
                                .last_part = "mlp/fc2",
                                .parameters = layer_parameters(a),
                                .products = {layer_products(a)},
                                .attention = {layer_attention(a)}});
  }
  const index_t words = a.vocab * a.hidden;
  blueprint.blocks.push_back(
      {.kind = "head",
       .name = "head",
       .border = {},
       .reads = {"hidden"},
       .makes = {},
       .fields = {"labels", "loss_mask"},
       .table = "embedding/word",
       .parameters = norm_parameters(a) + (a.tie_embeddings ? index_t{0} : words),
       .products = {{.flops = 2.0 * static_cast<double>(words)}},
       .objective = 0,
       .gradients_in_forward = true});
  blueprint.tables.push_back({.name = "embedding/word",
                              .unit = "embedding",
                              .rows = a.vocab,
                              .columns = a.hidden,
                              .init_std = a.init_std});
  return blueprint;
}

}  // namespace trireme::model

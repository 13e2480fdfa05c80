// model/gpt.cpp — see gpt.hpp.
#include "model/gpt.hpp"

#include <fmt/format.h>

#include "base/types.hpp"

namespace trireme::model {

namespace {

BlockFlops layer_flops(const Architecture& a) {
  const auto h = static_cast<double>(a.hidden);
  const auto d = static_cast<double>(a.head_elements());
  const double queries = static_cast<double>(a.heads) * d;
  const double keys = static_cast<double>(a.kv_heads) * d;
  const double weights = h * (queries + 2 * keys) + queries * h +
                         (a.is_gated() ? 3 : 2) * h * static_cast<double>(a.ffn_hidden);
  return {.per_token = 2 * weights, .per_token_and_key = 4 * queries};
}

}  // namespace

Blueprint gpt_blueprint(const Architecture& a) {
  const Border hidden = {{"hidden", 0, a.hidden}};
  Blueprint blueprint{
      .architecture = a,
      .batch = {.streams = {{"text", a.sequence, "positions"}},
                .fields = {{"tokens"},
                           {"positions"},
                           {"labels"},
                           {"loss_mask", DType::float32}}},
      .objectives = {{.name = "loss", .weight = 1.0, .mask = "loss_mask"}}};
  blueprint.blocks.push_back({.kind = "embedding",
                              .name = "embedding",
                              .border = hidden,
                              .makes = {"hidden"},
                              .fields = {"tokens", "positions"},
                              .table = "embedding/word"});
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
                                .flops = layer_flops(a)});
  }
  blueprint.blocks.push_back({.kind = "head",
                              .name = "head",
                              .border = {},
                              .reads = {"hidden"},
                              .makes = {},
                              .fields = {"labels", "loss_mask"},
                              .table = "embedding/word",
                              .flops = {.per_token = 2.0 * static_cast<double>(a.hidden) *
                                                     static_cast<double>(a.vocabulary)},
                              .objective = 0});
  blueprint.tables.push_back({.name = "embedding/word",
                              .unit = "embedding",
                              .rows = a.vocabulary,
                              .columns = a.hidden,
                              .init_std = a.init_std});
  return blueprint;
}

}  // namespace trireme::model

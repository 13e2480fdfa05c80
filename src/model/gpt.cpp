// model/gpt.cpp — see gpt.hpp.
#include "model/gpt.hpp"

#include <fmt/format.h>

#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "model/counts.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::model {

Blueprint gpt_blueprint(const Architecture& a) {
  const Border hidden = {{"hidden", 0, a.hidden}};
  Blueprint blueprint{
      .architecture = a,
      .batch = {.streams = {{"text", a.sequence}},
                .fields = {{.name = "tokens", .below = a.vocab},
                           {.name = "positions", .holds = Holds::places},
                           {.name = "labels", .below = a.vocab},
                           {.name = "loss_mask", .holds = Holds::weights}}},
      .objectives =
          {{.name = "loss", .weight = 1.0, .mask = "loss_mask", .labels = "labels"}},
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
    blueprint.blocks.push_back(
        {.kind = "layer",
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
         .attention = {layer_attention(a, kernels::MaskKind::causal)}});
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

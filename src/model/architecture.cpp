// model/architecture.cpp — see architecture.hpp.
#include "model/architecture.hpp"

namespace trireme::model {

Architecture architecture_of(const config::ModelConfig& m) {
  return {.kind = m.kind,
          .layers = m.layers,
          .hidden = m.hidden,
          .heads = m.heads,
          .kv_heads = m.kv_heads,
          .head_size = m.head_size,
          .ffn_hidden = m.ffn_hidden,
          .sequence = m.sequence,
          .vocabulary = m.vocab,
          .dropout = m.dropout,
          .attention_dropout = m.attention_dropout,
          .init_std = m.init_std,
          .norm = m.norm,
          .activation = m.activation,
          .position = m.position,
          .bias = m.bias,
          .tie_embeddings = m.tie_embeddings};
}

}  // namespace trireme::model

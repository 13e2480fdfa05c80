// nn/transformer_config.hpp — the dimensions that layers of a Transformer are made from;
// each takes those that it has.
#ifndef TRIREME_NN_TRANSFORMER_CONFIG_HPP_
#define TRIREME_NN_TRANSFORMER_CONFIG_HPP_

#include <cmath>

#include "base/types.hpp"

namespace trireme::nn {

struct TransformerConfig {
  index_t layers = 0;      // L of the whole model
  index_t hidden = 0;      // h
  index_t heads = 0;       // a
  index_t kv_heads = 0;    // g
  index_t head_size = 0;   // d
  index_t ffn_hidden = 0;  // f
  index_t sequence = 0;    // longest s
  double dropout = 0.0;    // of embeddings and of both outputs
  double attention_dropout = 0.0;
  double init_std = 0.02;

  // GPT-2 scales the two matrices that write to the residual stream by 1 / sqrt(2 L).
  double output_init_std() const {
    return init_std / std::sqrt(2.0 * static_cast<double>(layers));
  }
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_TRANSFORMER_CONFIG_HPP_

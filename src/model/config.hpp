// model/config.hpp — the dimensions of a GPT, as the deck's `model` section gives them.
#ifndef TRIREME_MODEL_CONFIG_HPP_
#define TRIREME_MODEL_CONFIG_HPP_

#include "base/types.hpp"

namespace trireme::model {

struct GptConfig {
  index_t layers = 0;      // L
  index_t hidden = 0;      // h
  index_t heads = 0;       // a
  index_t kv_heads = 0;    // g
  index_t ffn_hidden = 0;  // f
  index_t sequence = 0;    // s, also the number of learned positions
  index_t vocabulary = 0;  // V, unpadded
  double dropout = 0.0;
  double attention_dropout = 0.0;
  double init_std = 0.02;
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_CONFIG_HPP_

// model/architecture.hpp — the dimensions and variants of a model, as the deck's `model`
// section gives them. A key of that section ends here: what trains, plans or restores a
// model takes the whole of it, and only blocks and formulae ask for single dimensions.
#ifndef TRIREME_MODEL_ARCHITECTURE_HPP_
#define TRIREME_MODEL_ARCHITECTURE_HPP_

#include "base/types.hpp"
#include "config/deck.hpp"
#include "config/enums.hpp"

namespace trireme::model {

using config::Activation;
using config::ModelKind;
using config::Norm;
using config::Position;

struct Architecture {
  ModelKind kind = ModelKind::gpt;
  index_t layers = 0;      // L
  index_t hidden = 0;      // h
  index_t heads = 0;       // a
  index_t kv_heads = 0;    // g
  index_t head_size = 0;   // d; 0: h / a
  index_t ffn_hidden = 0;  // f
  index_t sequence = 0;    // s, also the number of learned positions
  index_t vocabulary = 0;  // V, unpadded
  double dropout = 0.0;
  double attention_dropout = 0.0;
  double init_std = 0.02;
  Norm norm = Norm::layernorm;
  Activation activation = Activation::gelu_tanh;
  Position position = Position::learned;
  bool bias = true;  // of linear layers and norms; the head has none
  bool tie_embeddings = true;

  // Elements of one head: those of a query, a key or a value.
  index_t head_elements() const { return head_size > 0 ? head_size : hidden / heads; }
  // Whether a third matrix of the feed-forward block gates what its first makes.
  bool is_gated() const {
    return activation == Activation::swiglu || activation == Activation::geglu;
  }
};

Architecture architecture_of(const config::ModelConfig& section);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_ARCHITECTURE_HPP_

// model/formulae.cpp — see formulae.hpp.
#include "model/formulae.hpp"

#include "base/error.hpp"

namespace trireme::model {

index_t parameter_count(const Architecture& c) {
  TRIREME_REQUIRE(c.position != Position::relative,
                  "the parameters of relative positions are not known: the number of "
                  "their buckets is not in the configuration");
  const index_t queries = c.heads * c.head_elements();
  const index_t kv = c.kv_heads * c.head_elements();
  const index_t bias = c.bias ? 1 : 0;
  const index_t norm = c.hidden * (c.norm == Norm::layernorm ? 1 + bias : 1);
  const index_t attention =
      (queries + 2 * kv) * (c.hidden + bias) + c.hidden * (queries + bias);
  const index_t mlp = (c.is_gated() ? 2 : 1) * c.ffn_hidden * (c.hidden + bias) +
                      c.hidden * (c.ffn_hidden + bias);
  const index_t words = (c.tie_embeddings ? 1 : 2) * c.vocabulary * c.hidden;
  const index_t positions =
      c.position == Position::learned ? c.sequence * c.hidden : index_t{0};
  return c.layers * (attention + mlp + 2 * norm) + norm + words + positions;
}

double forward_flops(const BlockSpec& block, index_t samples, index_t sequence,
                     AttentionCount count) {
  const double tokens = static_cast<double>(samples) * static_cast<double>(sequence);
  const double keys =
      static_cast<double>(sequence) * (count == AttentionCount::causal ? 0.5 : 1.0);
  return tokens * (block.flops.per_token + keys * block.flops.per_token_and_key);
}

double layers_forward_flops(const Architecture& c, index_t samples, index_t sequence,
                            AttentionCount count) {
  const double h = static_cast<double>(c.hidden);
  const auto d = static_cast<double>(c.head_elements());
  const double queries = static_cast<double>(c.heads) * d;
  const double kv = static_cast<double>(c.kv_heads) * d;
  const double f = static_cast<double>(c.ffn_hidden);
  const double tokens = static_cast<double>(samples) * static_cast<double>(sequence);
  const double keys =
      static_cast<double>(sequence) * (count == AttentionCount::causal ? 0.5 : 1.0);
  const double weights =
      h * (queries + 2 * kv) + queries * h + (c.is_gated() ? 3 : 2) * h * f;
  return tokens * static_cast<double>(c.layers) * (2 * weights + 4 * keys * queries);
}

double model_flops(const Architecture& c, index_t samples, index_t sequence,
                   AttentionCount count) {
  const double tokens = static_cast<double>(samples) * static_cast<double>(sequence);
  const double logits =
      2 * tokens * static_cast<double>(c.hidden) * static_cast<double>(c.vocabulary);
  // Backward is twice forward: one product for the input's, one for the weight's
  // gradient.
  return 3 * (layers_forward_flops(c, samples, sequence, count) + logits);
}

}  // namespace trireme::model

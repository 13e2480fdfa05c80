// model/formulae.cpp — see formulae.hpp.
#include "model/formulae.hpp"

namespace trireme::model {

index_t parameter_count(const GptConfig& c) {
  const index_t kv = c.kv_heads * (c.hidden / c.heads);
  const index_t attention =
      (c.hidden + 2 * kv) * (c.hidden + 1) + c.hidden * (c.hidden + 1);
  const index_t mlp = c.ffn_hidden * (c.hidden + 1) + c.hidden * (c.ffn_hidden + 1);
  const index_t norms = 2 * 2 * c.hidden;
  return c.layers * (attention + mlp + norms) + 2 * c.hidden +
         (c.vocabulary + c.sequence) * c.hidden;
}

double model_flops(const GptConfig& c, index_t samples, index_t sequence,
                   AttentionCount count) {
  const double h = static_cast<double>(c.hidden);
  const double kv = static_cast<double>(c.kv_heads) * h / static_cast<double>(c.heads);
  const double f = static_cast<double>(c.ffn_hidden);
  const double tokens = static_cast<double>(samples) * static_cast<double>(sequence);
  const double keys =
      static_cast<double>(sequence) * (count == AttentionCount::causal ? 0.5 : 1.0);
  const double weights = h * (h + 2 * kv) + h * h + 2 * h * f;
  const double layer = 2 * weights + 4 * keys * h;
  const double logits = 2 * h * static_cast<double>(c.vocabulary);
  // Backward is twice forward: one product for the input's, one for the weight's
  // gradient.
  return 3 * tokens * (static_cast<double>(c.layers) * layer + logits);
}

}  // namespace trireme::model

// model/counts.hpp — how many parameters the parts of a model have, and the products of a
// Transformer layer: what kinds of models add up to their blueprints.
//
// Example: h = 4, one head of 4, f = 16, with biases. Queries, keys and values are 12
// columns of 4 + 1, the projection 4 of 4 + 1, the feed-forward block 16 x 5 + 4 x 17;
// two norms of 8: 60 + 20 + 148 + 16 = 244.
#ifndef TRIREME_MODEL_COUNTS_HPP_
#define TRIREME_MODEL_COUNTS_HPP_

#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "model/blueprint.hpp"

namespace trireme::model {

// Columns of a layer's queries; of its queries, keys and values.
index_t query_columns(const Architecture& a);
index_t qkv_columns(const Architecture& a);

// Of a norm: with the bias where there are biases; RMSNorm has none.
index_t norm_parameters(const Architecture& a);
index_t attention_parameters(const Architecture& a);
index_t mlp_parameters(const Architecture& a);
// Attention, feed-forward block and their norms.
index_t layer_parameters(const Architecture& a);
index_t position_parameters(const Architecture& a);

// FLOPs of a token in a layer's products.
double attention_products(const Architecture& a);
double mlp_products(const Architecture& a);
ProductFlops layer_products(const Architecture& a);
AttentionSpec layer_attention(const Architecture& a, kernels::MaskKind mask);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_COUNTS_HPP_

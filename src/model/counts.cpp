// model/counts.cpp — see counts.hpp.
#include "model/counts.hpp"

#include "base/error.hpp"

namespace trireme::model {

namespace {

index_t matrices_of_mlp(const Architecture& a) {
  return a.is_gated() ? 3 : 2;
}

}  // namespace

index_t query_columns(const Architecture& a) {
  return a.heads * a.head_elements();
}

index_t qkv_columns(const Architecture& a) {
  return (a.heads + 2 * a.kv_heads) * a.head_elements();
}

index_t norm_parameters(const Architecture& a) {
  return a.hidden * (a.norm == Norm::layernorm && a.bias ? 2 : 1);
}

index_t attention_parameters(const Architecture& a) {
  const index_t bias = a.bias ? 1 : 0;
  return qkv_columns(a) * (a.hidden + bias) + a.hidden * (query_columns(a) + bias);
}

index_t mlp_parameters(const Architecture& a) {
  const index_t bias = a.bias ? 1 : 0;
  return (matrices_of_mlp(a) - 1) * a.ffn_hidden * (a.hidden + bias) +
         a.hidden * (a.ffn_hidden + bias);
}

index_t layer_parameters(const Architecture& a) {
  return attention_parameters(a) + mlp_parameters(a) + 2 * norm_parameters(a);
}

index_t position_parameters(const Architecture& a) {
  TRIREME_REQUIRE(a.position != Position::relative,
                  "the parameters of relative positions are not known: the number of "
                  "their buckets is not in the configuration");
  return a.position == Position::learned ? a.sequence * a.hidden : index_t{0};
}

double attention_products(const Architecture& a) {
  return 2.0 * static_cast<double>(a.hidden) *
         static_cast<double>(qkv_columns(a) + query_columns(a));
}

double mlp_products(const Architecture& a) {
  return 2.0 * static_cast<double>(matrices_of_mlp(a)) * static_cast<double>(a.hidden) *
         static_cast<double>(a.ffn_hidden);
}

ProductFlops layer_products(const Architecture& a) {
  return {.flops = attention_products(a) + mlp_products(a)};
}

AttentionSpec layer_attention(const Architecture& a, kernels::MaskKind mask) {
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_size = a.head_elements(),
          .mask = mask};
}

}  // namespace trireme::model

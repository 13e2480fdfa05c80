// nn/relative_bias.hpp — T5's relative position bias, a table (buckets, heads) that all
// layers of a stack share: what its self-attention adds to the scores of each distance.
//
// Every layer makes the bias of all distances from the table for itself, a few thousand
// numbers, and adds its gradient to the table's: nothing but the table is shared.
#ifndef TRIREME_NN_RELATIVE_BIAS_HPP_
#define TRIREME_NN_RELATIVE_BIAS_HPP_

#include "base/types.hpp"
#include "kernels/relative_bias.hpp"
#include "nn/context.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

template <class T>
class RelativeBias {
 public:
  // `table` (buckets, a_tp) is registered already; the caller's unit borrows its.
  RelativeBias(const ParamRef<T>& table, const kernels::RelativeBuckets& buckets)
      : table_(table), buckets_(buckets) {}

  // Of queries that are the last of so many positions, to all of these as keys, in
  // `memory`: (a_tp, queries + keys - 1), as kernels::attention_forward() wants it. Of a
  // single query it is by distance, as kernels::decode_attention() does.
  View2<Accumulator<T>> forward(const Context& context, index_t queries, index_t keys,
                                Arena& memory) const;
  // Memory for its gradient, which attention_backward() writes.
  View2<Accumulator<T>> take_gradient(index_t queries, index_t keys, Arena& memory) const;
  // d_table += d_bias, by buckets.
  void backward_weight(const Context& context, View2<const Accumulator<T>> d_bias,
                       index_t queries) const;

 private:
  // The distance query - key of column 0, which is from the first query to the last key.
  static index_t first_distance(index_t queries) { return 1 - queries; }

  ParamRef<T> table_;
  kernels::RelativeBuckets buckets_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_RELATIVE_BIAS_HPP_

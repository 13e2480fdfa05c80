// nn/relative_bias.cpp — see relative_bias.hpp.
#include "nn/relative_bias.hpp"

#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
View2<Accumulator<T>> RelativeBias<T>::take_gradient(index_t queries, index_t keys,
                                                     Arena& memory) const {
  return memory.matrix<Accumulator<T>>(Category::attention, table_.local_shape()[1],
                                       queries + keys - 1);
}

template <class T>
View2<Accumulator<T>> RelativeBias<T>::forward(const Context& context, index_t queries,
                                               index_t keys, Arena& memory) const {
  const View2<Accumulator<T>> bias = take_gradient(queries, keys, memory);
  kernels::relative_bias_forward<T>(context.exec, buckets_, table_.matrix(),
                                    first_distance(queries), bias);
  return bias;
}

template <class T>
void RelativeBias<T>::backward_weight(const Context& context,
                                      View2<const Accumulator<T>> d_bias,
                                      index_t queries) const {
  table_.write_matrix_gradient(
      [&]<class G>(kernels::Accumulate accumulate, View2<G> d_table) {
        kernels::relative_bias_backward<Accumulator<T>, G>(
            context.exec, buckets_, d_bias, first_distance(queries), accumulate, d_table);
      });
}

#define TRIREME_INSTANTIATE(T) template class RelativeBias<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn

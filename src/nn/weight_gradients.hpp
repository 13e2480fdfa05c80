// nn/weight_gradients.hpp — gradients of parameters from what a backward pass has, in the
// type that they are kept in.
#ifndef TRIREME_NN_WEIGHT_GRADIENTS_HPP_
#define TRIREME_NN_WEIGHT_GRADIENTS_HPP_

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/gemm.hpp"
#include "kernels/reductions.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

// d_W (out, in) = or += d_y^T x.
template <class T>
void product_gradient(const Exec& exec, const ParamRef<T>& weight, View2<const T> d_y,
                      View2<const T> x) {
  weight.write_matrix_gradient(
      [&]<class G>(kernels::Accumulate accumulate, View2<G> d_weight) {
        kernels::linear_backward_weight<T, G>(exec, d_y, x, accumulate, d_weight);
      });
}

// d_b = or += what sums over blocks of rows, left by a fused backward pass, add up to.
template <class T>
void partials_gradient(const Exec& exec, const ParamRef<T>& vector,
                       View2<const Accumulator<T>> partials) {
  vector.write_vector_gradient(
      [&]<class G>(kernels::Accumulate accumulate, View1<G> sums) {
        kernels::add_partials<Accumulator<T>, G>(exec, partials, accumulate, sums);
      });
}

}  // namespace trireme::nn

#endif  // TRIREME_NN_WEIGHT_GRADIENTS_HPP_

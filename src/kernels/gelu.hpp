// kernels/gelu.hpp — bias and GeLU in one pass (tanh form, as GPT-2 and Megatron).
//
//   y = gelu(x + bias);  gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))).
// Saved for backward: x (before the bias). Hendrycks & Gimpel 2016, arXiv:1606.08415.
#ifndef TRIREME_KERNELS_GELU_HPP_
#define TRIREME_KERNELS_GELU_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// x, y: (rows, f); bias (f).
template <class T>
void bias_gelu_forward(const Exec& exec, View2<const T> x, View1<const T> bias,
                       View2<T> y);

// d_x = d_y * gelu'(x + bias); d_x may alias d_y. The bias gradient is sum_rows(d_x)
// (kernels/reductions.hpp).
template <class T>
void bias_gelu_backward(const Exec& exec, View2<const T> d_y, View2<const T> x,
                        View1<const T> bias, View2<T> d_x);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GELU_HPP_

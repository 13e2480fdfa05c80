// kernels/gelu.hpp — GeLU (tanh form, as GPT-2 and Megatron) and its gradient.
//
//   y = gelu(z);  gelu(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))).
// z has the bias of the layer before, whose product adds it (Epilogue, kernels/gemm.hpp),
// and mostly the activation comes from there, too. Saved for backward: z. Hendrycks &
// Gimpel 2016, arXiv:1606.08415; docs/math/gelu.md
#ifndef TRIREME_KERNELS_GELU_HPP_
#define TRIREME_KERNELS_GELU_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

// z, y: (rows, f); y may alias z. Makes an activation again that was not kept, to the
// bits that the product's epilogue gave.
template <class T>
void gelu_forward(const Exec& exec, View2<const T> z, View2<T> y);

// d_z = d_y * gelu'(z); d_z may alias d_y. partials (tiled_partial_count(rows, f), f) =
// sums of d_z over blocks of rows, for the gradient of the bias (kernels/reductions.hpp).
template <class T>
void gelu_backward(const Exec& exec, View2<const T> d_y, View2<const T> z, View2<T> d_z,
                   View2<Accumulator<T>> partials);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_GELU_HPP_

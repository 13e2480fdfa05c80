// kernels/activation.hpp — what follows the first product of a feed-forward block, number
// by number, and its gradient; and gated pairs, where it gates a second product.
//
//   y = f(z);     gated: z = (gate, up), y = f(gate) * up.
//   gelu_tanh: z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))), as GPT-2 and Megatron;
//   gelu_erf: z Phi(z), as BERT;   relu: max(z, 0);   tanh: of BERT's pooler.
// z has the bias of the layer before, whose product adds it (Epilogue, kernels/gemm.hpp),
// and mostly an activation that is not gated comes from there, too. Saved for backward:
// z. Hendrycks & Gimpel 2016, arXiv:1606.08415; Shazeer 2020, arXiv:2002.05202;
// docs/math/activation.md
#ifndef TRIREME_KERNELS_ACTIVATION_HPP_
#define TRIREME_KERNELS_ACTIVATION_HPP_

#include "base/exec.hpp"

namespace trireme::kernels {

enum class Activation { none, gelu_tanh, gelu_erf, relu, tanh };

// z, y: (rows, f); y may alias z. Makes an activation again that was not kept, to the
// bits that the product's epilogue gave.
template <class T>
void activation_forward(const Exec& exec, Activation activation, View2<const T> z,
                        View2<T> y);

// d_z = d_y * f'(z); d_z may alias d_y. partials (tiled_partial_count(rows, f), f) = sums
// of d_z over blocks of rows, for the gradient of the bias (kernels/reductions.hpp); a
// null View where there is no bias.
template <class T>
void activation_backward(const Exec& exec, Activation activation, View2<const T> d_y,
                         View2<const T> z, View2<T> d_z, View2<Accumulator<T>> partials);

// z (rows, 2 f): f columns of the gate, then those that it gates; y (rows, f).
template <class T>
void gated_forward(const Exec& exec, Activation activation, View2<const T> z, View2<T> y);

// d_z (rows, 2 f) = (d_y * up * f'(gate), d_y * f(gate)); d_z may alias z.
template <class T>
void gated_backward(const Exec& exec, Activation activation, View2<const T> d_y,
                    View2<const T> z, View2<T> d_z);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ACTIVATION_HPP_

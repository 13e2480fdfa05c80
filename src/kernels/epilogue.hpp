// kernels/epilogue.hpp — what follows a linear layer's product, as a pass of its own: for
// products whose library cannot do it, and the reference for those whose library can.
//
//   z = product + bias;   y = activation(z) + residual.
// Saved for backward: z, the pre-activation with its bias. docs/math/activation.md
#ifndef TRIREME_KERNELS_EPILOGUE_HPP_
#define TRIREME_KERNELS_EPILOGUE_HPP_

#include "base/exec.hpp"
#include "kernels/activation.hpp"
#include "kernels/gemm.hpp"
#include "kernels/gemm_reference.hpp"

namespace trireme::kernels {

// Whether a pass counts for itself, or as a part of the product that was called with the
// costs of both.
enum class PassOf { itself, product };

// product, y: (rows, f), with any distance between rows; y may be the product itself.
template <class T>
void apply_epilogue(const Exec& exec, View2<const T> product, const Epilogue<T>& epilogue,
                    View2<T> y, PassOf pass = PassOf::itself);

// Throws Error unless the parts of an epilogue fit y (rows, f) and each other.
template <class T>
void require_epilogue(const Epilogue<T>& epilogue, const View2<T>& y);

template <class T>
bool is_empty(const Epilogue<T>& epilogue) {
  return epilogue.bias.extent(0) == 0 && epilogue.residual.extent(0) == 0 &&
         epilogue.activation == Activation::none;
}

// What a product that does its epilogue itself costs, whoever computes it.
template <class T>
Kernel fused_kernel(const GemmShape& shape, const View2<const T>& x,
                    const WeightOperand<T>& weight, const Epilogue<T>& epilogue,
                    const View2<T>& y) {
  Cost cost = gemm_cost(shape, Accumulate::no, x, weight.rows, y);
  cost.bytes += bytes_of(epilogue.bias, epilogue.residual, epilogue.pre_activation);
  return {"trireme::kernels::linear_forward[fused]", cost};
}

// linear_forward() by `product`, a function (Accumulate, View2<T> c) that computes
// c = or += x W^T, and a pass over what it leaves.
template <class T, class Multiply>
void forward_in_two_passes(const Exec& exec, const Epilogue<T>& epilogue,
                           const View2<T>& y, const Multiply& product,
                           PassOf pass = PassOf::itself) {
  require_epilogue(epilogue, y);
  // The product goes to where z is kept, or to y. A residual that is y itself would be
  // lost there: the product is added to it.
  const bool adds_to_y = epilogue.residual.extent(0) > 0 &&
                         epilogue.residual.data() == y.data() && y.data() != nullptr;
  const View2<T> z = epilogue.pre_activation.extent(0) > 0 ? epilogue.pre_activation : y;
  product(adds_to_y ? Accumulate::yes : Accumulate::no, z);
  Epilogue<T> rest = epilogue;
  if (adds_to_y) rest.residual = {};
  if (!is_empty(rest)) apply_epilogue<T>(exec, z, rest, y, pass);
}

// The plain loop, then the pass: the oracle of the tests.
template <class T>
void linear_forward_reference(const Exec& exec, View2<const T> x,
                              const WeightOperand<T>& weight, const Epilogue<T>& epilogue,
                              View2<T> y);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_EPILOGUE_HPP_

// kernels/impl/gelu.hpp — GeLU of one number and its slope, for every kernel that has it.
//
// z/2 (1 + tanh u) is computed as z s with s = 1 / (1 + exp(-2 u)): one exponential, and
// no cancellation in 1 + tanh u for negative z. Derivation: docs/math/gelu.md
#ifndef TRIREME_KERNELS_IMPL_GELU_HPP_
#define TRIREME_KERNELS_IMPL_GELU_HPP_

#include <Kokkos_Core.hpp>

#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {
namespace detail {

template <class A>
inline constexpr A kGeluLinear = static_cast<A>(1.5957691216057307);  // 2 sqrt(2 / pi)
template <class A>
inline constexpr A kGeluCubic = static_cast<A>(1.5957691216057307 * 0.044715);

// exp(-2 u)
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A exp_minus_2u(A z) {
  return exp_for<T>(-z * multiply_add(kGeluCubic<A>, z * z, kGeluLinear<A>));
}

}  // namespace detail

// Of a kernel over T: see exp_for().
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu(A z) {
  return quotient_for<T>(z, A{1} + detail::exp_minus_2u<T>(z));
}

// d(z s)/dz = s + z s (1 - s) d(2 u)/dz
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_slope(A z) {
  // Beyond +-10 the slope is 1 or 0 to the last digit; within, nothing overflows.
  z = z > A{10} ? A{10} : z;
  z = z < A{-10} ? A{-10} : z;
  const A e = detail::exp_minus_2u<T>(z);
  const A s = quotient_for<T>(A{1}, A{1} + e);
  const A rest = e * s;  // 1 - s, without cancellation
  const A du = multiply_add(A{3} * detail::kGeluCubic<A>, z * z, detail::kGeluLinear<A>);
  return multiply_add(z * du, s * rest, s);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_GELU_HPP_

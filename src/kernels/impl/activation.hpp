// kernels/impl/activation.hpp — activations of one number and their slopes, for every
// kernel that has them.
//
// GeLU's tanh form z/2 (1 + tanh u) is computed as z s with s = 1 / (1 + exp(-2 u)): one
// exponential, and no cancellation in 1 + tanh u for negative z. So is z Phi(z), by what
// the normal distribution has beyond |z|. Derivation: docs/math/activation.md
#ifndef TRIREME_KERNELS_IMPL_ACTIVATION_HPP_
#define TRIREME_KERNELS_IMPL_ACTIVATION_HPP_

#include <Kokkos_Core.hpp>

#include <type_traits>

#include "kernels/activation.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels {
namespace detail {

template <class A>
inline constexpr A kGeluLinear = static_cast<A>(1.5957691216057307);  // 2 sqrt(2 / pi)
template <class A>
inline constexpr A kGeluCubic = static_cast<A>(1.5957691216057307 * 0.044715);
template <class A>
inline constexpr A kNormalPeak = static_cast<A>(0.3989422804014327);  // 1 / sqrt(2 pi)

// exp(-2 u)
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A exp_minus_2u(A z) {
  return exp_for<T>(-z * multiply_add(kGeluCubic<A>, z * z, kGeluLinear<A>));
}

// Within [-most, most]; NaN stays.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A clamped(A z, A most) {
  z = z > most ? most : z;
  return z < -most ? -most : z;
}

// Beyond, the normal distribution has nothing that a number could hold.
template <class A>
inline constexpr A kNormalEnd{sizeof(A) == 4 ? 14 : 39};

}  // namespace detail

// Of a kernel over T: see exp_for().
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_tanh(A z) {
  return quotient_for<T>(z, A{1} + detail::exp_minus_2u<T>(z));
}

// d(z s)/dz = s + z s (1 - s) d(2 u)/dz
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_tanh_slope(A z) {
  // Beyond +-10 the slope is 1 or 0 to the last digit; within, nothing overflows.
  z = detail::clamped(z, A{10});
  const A e = detail::exp_minus_2u<T>(z);
  const A s = quotient_for<T>(A{1}, A{1} + e);
  const A rest = e * s;  // 1 - s, without cancellation
  const A du = multiply_add(A{3} * detail::kGeluCubic<A>, z * z, detail::kGeluLinear<A>);
  return multiply_add(z * du, s * rest, s);
}

// max(z, 0) - |z| Phi(-|z|)
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_erf(A z) {
  const A above = z < A{0} ? A{0} : z;
  const A size = z < A{0} ? -z : z;
  const A t = size > detail::kNormalEnd<A> ? detail::kNormalEnd<A> : size;
  return multiply_add(-t, normal_tail<T>(t).beyond, above);
}

// Phi(z) + z phi(z)
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A gelu_erf_slope(A z) {
  z = detail::clamped(z, detail::kNormalEnd<A>);
  const auto tail = normal_tail<T>(z < A{0} ? -z : z);
  const A below = z < A{0} ? tail.beyond : A{1} - tail.beyond;
  return multiply_add(z * detail::kNormalPeak<A>, tail.exponential, below);
}

// f(z) and f'(z). Where z is not a number neither is y.
template <Activation kActivation, class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A activated(A z) {
  if constexpr (kActivation == Activation::gelu_tanh) {
    return gelu_tanh<T>(z);
  } else if constexpr (kActivation == Activation::gelu_erf) {
    return gelu_erf<T>(z);
  } else if constexpr (kActivation == Activation::relu) {
    return z <= A{0} ? A{0} : z;
  } else {
    static_assert(kActivation == Activation::tanh);
    return Kokkos::tanh(z);
  }
}
template <Activation kActivation, class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A activation_slope(A z) {
  if constexpr (kActivation == Activation::gelu_tanh) {
    return gelu_tanh_slope<T>(z);
  } else if constexpr (kActivation == Activation::gelu_erf) {
    return gelu_erf_slope<T>(z);
  } else if constexpr (kActivation == Activation::relu) {
    return z <= A{0} ? A{0} : A{1};
  } else {
    static_assert(kActivation == Activation::tanh);
    const A y = Kokkos::tanh(z);
    return (A{1} - y) * (A{1} + y);
  }
}

// The same as functions for mapped(), which compilers put in their place whatever they
// think of their length.
template <Activation kActivation, class T>
struct Activated {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A z) const {
    return activated<kActivation, T>(z);
  }
};
template <Activation kActivation, class T>
struct ActivationSlope {
  template <class A>
  KOKKOS_FORCEINLINE_FUNCTION A operator()(A z) const {
    return activation_slope<kActivation, T>(z);
  }
};

// body(std::integral_constant<Activation, ...>) of this one.
template <class Body>
auto with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::gelu_tanh:
      return body(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::gelu_erf:
      return body(std::integral_constant<Activation, Activation::gelu_erf>());
    case Activation::relu:
      return body(std::integral_constant<Activation, Activation::relu>());
    case Activation::tanh:
      return body(std::integral_constant<Activation, Activation::tanh>());
    case Activation::none:
      break;
  }
  return body(std::integral_constant<Activation, Activation::none>());
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_ACTIVATION_HPP_

// kernels/impl/vector_math.hpp — exp, log and the normal distribution's tail without
// branches and without calls, so that a loop over a row vectorises at plain -O3 (no
// compiler may vectorise std::exp without -ffast-math) and every lane gives the same bits
// wherever a row is cut.
//
// float: own minimax polynomials (Remez, relative error), argument reduction after Cody &
// Waite. Errors over the whole range: exp 0.9 (1.16 without fused multiply-adds), log
// 0.8, the tail 6 ulp (70) and what is before it 2 ulp (swept by
// tests/unit/kernels/test_vector_math.cpp). exp is 0 where it is below the smallest
// normal number, 2^-126; NaN stays NaN. double: the library's functions, for gradient
// checks.
#ifndef TRIREME_KERNELS_IMPL_VECTOR_MATH_HPP_
#define TRIREME_KERNELS_IMPL_VECTOR_MATH_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>

namespace trireme::kernels {

// a b + c, in one rounding where the processor has the instruction (elsewhere the
// library's fma would be a slow emulation: two roundings are accurate enough here).
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A multiply_add(A a, A b, A c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__CUDA_ARCH__) || \
    defined(__HIP_DEVICE_COMPILE__)
  return Kokkos::fma(a, b, c);
#else
  return a * b + c;
#endif
}

namespace detail {

// x = n ln 2 + r, |r| <= ln 2 / 2.
struct ReducedExp {
  float r;
  std::uint32_t n;  // modulo 2^9, in the low bits
};

// |x| < 2^21.
KOKKOS_FORCEINLINE_FUNCTION ReducedExp reduce_exp(float x) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the word.
  constexpr float kRound = 12582912.0f;
  const float shifted = multiply_add(x, 1.44269504088896341f, kRound);
  const float n = shifted - kRound;
  // ln 2 in two pieces; n times the first one is exact.
  const float r = multiply_add(n, -0.693359375f, x);
  return {multiply_add(n, 2.12194440e-4f, r), Kokkos::bit_cast<std::uint32_t>(shifted)};
}

// (exp(r) - 1 - r) / r^2
KOKKOS_FORCEINLINE_FUNCTION float exp_tail(float r) {
  float q = 0x1.6db4eap-10f;
  q = multiply_add(q, r, 0x1.123bdep-7f);
  q = multiply_add(q, r, 0x1.55545ep-5f);
  q = multiply_add(q, r, 0x1.55548ep-3f);
  return multiply_add(q, r, 0.5f);
}

// exp of x, of which e was made.
KOKKOS_FORCEINLINE_FUNCTION float exp_of_reduced(float x, const ReducedExp& e) {
  const float p = multiply_add(multiply_add(exp_tail(e.r), e.r, 1.0f), e.r, 1.0f);
  // Times 2^n: n is added to the exponent. What comes out where x is out of range (or
  // NaN, which the sum below brings back) is not used.
  float y = Kokkos::bit_cast<float>(Kokkos::bit_cast<std::uint32_t>(p) + (e.n << 23));
  y = multiply_add(x, 0.0f, y);
  y = x < -87.3365f ? 0.0f : y;
  return x > 88.72283f ? Kokkos::Experimental::infinity_v<float> : y;
}

}  // namespace detail

KOKKOS_FORCEINLINE_FUNCTION float vector_exp(float x) {
  return detail::exp_of_reduced(x, detail::reduce_exp(x));
}

KOKKOS_FORCEINLINE_FUNCTION float vector_log(float x) {
  // Subnormal numbers are scaled by 2^24 first.
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 16777216.0f : x;
  // x = 2^n m with sqrt(1/2) <= m < sqrt(2).
  const std::uint32_t word = Kokkos::bit_cast<std::uint32_t>(scaled) - 0x3f3504f3u;
  const auto n =
      static_cast<float>((static_cast<std::int32_t>(word) >> 23) - (tiny ? 24 : 0));
  const float f = Kokkos::bit_cast<float>((word & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float q = 0x1.145736p-4f;
  q = multiply_add(q, f, -0x1.de3bb0p-4f);
  q = multiply_add(q, f, 0x1.e6f066p-4f);
  q = multiply_add(q, f, -0x1.fc2218p-4f);
  q = multiply_add(q, f, 0x1.23376ap-3f);
  q = multiply_add(q, f, -0x1.555c4cp-3f);
  q = multiply_add(q, f, 0x1.99a4b6p-3f);
  q = multiply_add(q, f, -0x1.000006p-2f);
  q = multiply_add(q, f, 0x1.555548p-2f);
  const float f2 = f * f;
  // f - f^2/2 + f^3 q + n ln 2, small terms first.
  float tail = multiply_add(q * f, f2, n * -2.12194440e-4f);
  tail = multiply_add(f2, -0.5f, tail);
  float y = multiply_add(n, 0.693359375f, f + tail);
  y = x > 3.4028235e38f ? x : y;  // infinity
  y = x == 0.0f ? -Kokkos::Experimental::infinity_v<float> : y;
  return x >= 0.0f ? y : Kokkos::Experimental::quiet_NaN_v<float>;
}

KOKKOS_INLINE_FUNCTION double vector_exp(double x) {
  return Kokkos::exp(x);
}
KOKKOS_INLINE_FUNCTION double vector_log(double x) {
  return Kokkos::log(x);
}

// exp and a / b of kernels over T, which count in Accumulator<T>. On a GPU they are its
// own: over 16-bit numbers the approximations of its special-function unit (2 ulp, and
// of exp |x| 2^-24 more), two instructions each where the above have eighteen and ten.
// What is below the smallest normal number is 0: to keep it would take three more.
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A exp_for(A x) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
    return y;
  } else {
    return Kokkos::exp(x);
  }
#else
  return vector_exp(x);
#endif
}
template <class T, class A>
KOKKOS_FORCEINLINE_FUNCTION A quotient_for(A a, A b) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    float of_one;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(of_one) : "f"(b));
    return a * of_one;
  } else {
    return a / b;
  }
#else
  return a / b;
#endif
}

namespace detail {

// exp(-t^2 / 2). A host takes what t^2 loses as it is rounded into the reduced argument,
// where processors can tell: else the exponent of exp(-72) would be wrong by 4e-6.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION float exp_of_half_square(float t) {
  const float square = t * t;
#if defined(__CUDA_ARCH__)
  return exp_for<T>(-0.5f * square);
#else
  ReducedExp e = reduce_exp(-0.5f * square);
  e.r = multiply_add(-0.5f, multiply_add(t, t, -square), e.r);
  return exp_of_reduced(-0.5f * square, e);
#endif
}

}  // namespace detail

// Of the normal distribution, for t >= 0: what it has beyond t, Phi(-t) = erfc(t /
// sqrt 2) / 2, and exp(-t^2 / 2), of which it is made. 1 - erf(t / sqrt 2) would have no
// right digit left beyond 5.5.
template <class A>
struct NormalTail {
  A beyond, exponential;
};
// Of a kernel over T: see exp_for(). Relative minimax of Phi(-t) exp(t^2 / 2) for t in
// [0, 13.2], whose coefficients are all positive; t at most 100.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION NormalTail<float> normal_tail(float t) {
  float above = 0x1.054c68p-8f;
  above = multiply_add(above, t, 0x1.45b50ep-5f);
  above = multiply_add(above, t, 0x1.71f01ep-3f);
  above = multiply_add(above, t, 0x1.bd3400p-2f);
  above = multiply_add(above, t, 0.5f);
  float below = 0x1.477becp-7f;
  below = multiply_add(below, t, 0x1.983ec2p-4f);
  below = multiply_add(below, t, 0x1.d9b506p-2f);
  below = multiply_add(below, t, 0x1.311192p+0f);
  below = multiply_add(below, t, 0x1.aadc2ep+0f);
  below = multiply_add(below, t, 1.0f);
  const float exponential = detail::exp_of_half_square<T>(t);
  return {exponential * quotient_for<T>(above, below), exponential};
}
template <class T>
KOKKOS_INLINE_FUNCTION NormalTail<double> normal_tail(double t) {
  return {0.5 * Kokkos::erfc(t * 0.7071067811865475244), Kokkos::exp(-0.5 * t * t)};
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_VECTOR_MATH_HPP_

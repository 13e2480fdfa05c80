// kernels/impl/normal.hpp — two normal numbers from two random words (Box & Muller 1958),
// the same bits on every device.
//
// Every product that is added to something is an explicit fma, so that no compiler has
// anything left to contract; logarithm, sine and cosine are own polynomials (Remez). The
// angle is reduced on the integer, exactly.
#ifndef TRIREME_KERNELS_IMPL_NORMAL_HPP_
#define TRIREME_KERNELS_IMPL_NORMAL_HPP_

#include <Kokkos_Core.hpp>
#include <cstdint>

namespace trireme::kernels {

namespace detail {

// ln((2 w + 1) / 2^33): never 0 for a finite result, relative error 2e-16.
KOKKOS_FORCEINLINE_FUNCTION double log_of_word(std::uint32_t w) {
  // A 33-bit integer as the low bits of 2^52 + v.
  const double v = Kokkos::bit_cast<double>(0x4330000000000000ull |
                                            (2 * static_cast<std::uint64_t>(w) + 1)) -
                   4503599627370496.0;
  // v = 2^n m with sqrt(1/2) <= m < sqrt(2).
  const std::uint64_t bits = Kokkos::bit_cast<std::uint64_t>(v) - 0x3fe6a09e667f3bcdull;
  // n >= 0 here: the exponent of 1 is the smallest.
  const double n =
      Kokkos::bit_cast<double>(0x4330000000000000ull | (bits >> 52)) - 4503599627370496.0;
  const double m =
      Kokkos::bit_cast<double>((bits & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull);
  // ln m = 2 s + s^3 P(s^2), s = (m - 1) / (m + 1).
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 0x1.0f63111437419p-3;
  p = Kokkos::fma(p, z, 0x1.0f5cc92067822p-3);
  p = Kokkos::fma(p, z, 0x1.3b20ab8e23e2dp-3);
  p = Kokkos::fma(p, z, 0x1.745cde35a8585p-3);
  p = Kokkos::fma(p, z, 0x1.c71c7258fd8cfp-3);
  p = Kokkos::fma(p, z, 0x1.249249242b415p-2);
  p = Kokkos::fma(p, z, 0x1.9999999999dffp-2);
  p = Kokkos::fma(p, z, 0x1.5555555555555p-1);
  const double log_m = Kokkos::fma(s * z, p, s + s);
  return Kokkos::fma(n - 33.0, 0.6931471805599453, log_m);
}

}  // namespace detail

// a, b ~ N(0, 1), independent; |a|, |b| < 6.8.
KOKKOS_FORCEINLINE_FUNCTION void box_muller(std::uint32_t w0, std::uint32_t w1, double& a,
                                            double& b) {
  const double radius = Kokkos::sqrt(-2.0 * detail::log_of_word(w0));
  // w1 / 2^32 of a turn: the nearest quarter turn, and what is left, in [-1/8, 1/8).
  const std::uint32_t quarter = (w1 + 0x20000000u) >> 30;
  const auto left = static_cast<std::int32_t>(w1 - (quarter << 30));
  const double x = static_cast<double>(left) * 1.4629180792671596e-9;  // 2 pi / 2^32
  const double z = x * x;
  double s = 0x1.5d931838a99cap-33;
  s = Kokkos::fma(s, z, -0x1.ae5e66880661dp-26);
  s = Kokkos::fma(s, z, 0x1.71de357815deap-19);
  s = Kokkos::fma(s, z, -0x1.a01a019c1202ap-13);
  s = Kokkos::fma(s, z, 0x1.111111110f87dp-7);
  s = Kokkos::fma(s, z, -0x1.5555555555549p-3);
  const double sine = Kokkos::fma(x * z, s, x);
  double c = -0x1.8faeb5ff2f314p-37;
  c = Kokkos::fma(c, z, 0x1.1ee9ec18c2a84p-29);
  c = Kokkos::fma(c, z, -0x1.27e4f80a33f29p-22);
  c = Kokkos::fma(c, z, 0x1.a01a019cb216fp-16);
  c = Kokkos::fma(c, z, -0x1.6c16c16c15181p-10);
  c = Kokkos::fma(c, z, 0x1.555555555554cp-5);
  const double cosine = Kokkos::fma(z * z, c, Kokkos::fma(-0.5, z, 1.0));
  const bool odd = (quarter & 1u) != 0;
  const double first = odd ? sine : cosine;   // |cos| of the whole angle
  const double second = odd ? cosine : sine;  // |sin|
  a = radius * (((quarter + 1u) & 2u) != 0 ? -first : first);
  b = radius * ((quarter & 2u) != 0 ? -second : second);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORMAL_HPP_

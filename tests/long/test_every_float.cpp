// The normal distribution's tail, and the activation that is made of it, at every float:
// the sweep of tests/unit/kernels/test_vector_math.cpp without gaps.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstring>

#include "kernels/impl/activation.hpp"
#include "kernels/impl/vector_math.hpp"
#include "support/ulps.hpp"

namespace trireme::kernels {
namespace {

float float_of(std::uint32_t word) {
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// The worst of error(word) over words in [0, count).
template <class Error>
double worst_of(std::uint64_t count, const Error& error) {
  double worst = 0;
  Kokkos::parallel_reduce(
      "trireme::test::every_float",
      Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace,
                          Kokkos::IndexType<std::uint64_t>>(0, count),
      [&](std::uint64_t word, double& most) {
        most = std::max(most, error(static_cast<std::uint32_t>(word)));
      },
      Kokkos::Max<double>(worst));
  return worst;
}

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr double kTailError = 6;
#else
constexpr double kTailError = 70;
#endif
constexpr double kEnd = 13.2;  // exp is 0 from here on

double tail(double t) {
  return 0.5 * std::erfc(t / std::sqrt(2.0));
}

TEST(EveryFloat, NormalTail) {
  // Of t >= 0: words without a sign, infinity and NaN included.
  EXPECT_LE(worst_of(std::uint64_t{1} << 31,
                     [](std::uint32_t word) {
                       const float t = float_of(word);
                       const float got = normal_tail<float>(t > 100 ? 100 : t).beyond;
                       if (std::isnan(t)) return std::isnan(got) ? 0.0 : INFINITY;
                       if (t >= kEnd) return got < 1e-38f ? 0.0 : INFINITY;
                       return test::ulps(got, tail(t));
                     }),
            kTailError);
}

TEST(EveryFloat, GeluByErf) {
  // Relative where z Phi(z) is a normal number; nothing is left below.
  EXPECT_LE(worst_of(std::uint64_t{1} << 32,
                     [](std::uint32_t word) {
                       const float z = float_of(word), got = gelu_erf<float>(z);
                       if (std::isnan(z)) return std::isnan(got) ? 0.0 : INFINITY;
                       if (z < -12.8f) return std::abs(got) < 1e-35f ? 0.0 : INFINITY;
                       if (z > 12.8f) return got == z ? 0.0 : INFINITY;
                       return test::ulps(got, z * tail(-static_cast<double>(z)));
                     }),
            kTailError + 1);
}

}  // namespace
}  // namespace trireme::kernels

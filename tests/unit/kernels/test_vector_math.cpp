// exp, log and the normal distribution's tail over the whole range of float: worst error
// in units of the last place, and special values.
#include "kernels/impl/vector_math.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/ulps.hpp"

namespace trireme::kernels {
namespace {

using test::ulps;

template <class Own, class Library>
void sweep(const char* name, double bound, Own own, Library library) {
  double worst = 0;
  float worst_at = 0;
  // Every 997th pattern: 4.3 million, all exponents and both signs.
  for (std::uint64_t pattern = 0; pattern < (1ull << 32); pattern += 997) {
    const auto word = static_cast<std::uint32_t>(pattern);
    float x;
    std::memcpy(&x, &word, sizeof(x));
    const double error = ulps(own(x), library(static_cast<double>(x)));
    if (error > worst) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, bound) << name << " at " << worst_at;
}

// Without fused multiply-adds the argument's reduction rounds twice.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr double kExpError = 0.95;
#else
constexpr double kExpError = 1.2;
#endif
TEST(VectorMathErrors, Exp) {
  sweep(
      "exp", kExpError, [](float x) { return vector_exp(x); },
      [](double x) { return std::exp(x) < 0x1p-126 ? 0.0 : std::exp(x); });
}
TEST(VectorMathErrors, Log) {
  sweep(
      "log", 0.85, [](float x) { return vector_log(x); },
      [](double x) { return std::log(x); });
}

// The tail for t >= 0, and what is before it, which GeLU has of positive numbers. Below
// the smallest normal number exp is 0, and so is the tail.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
constexpr double kTailError = 6;
#else
constexpr double kTailError = 70;
#endif
TEST(VectorMathErrors, NormalTail) {
  const auto exact = [](double t) { return 0.5 * std::erfc(t / std::sqrt(2.0)); };
  constexpr double kEnd = 13.2;
  sweep(
      "tail", kTailError,
      [](float t) { return t >= 0 && t < kEnd ? normal_tail<float>(t).beyond : 0.0f; },
      [&](double t) { return t >= 0 && t < kEnd ? exact(t) : 0.0; });
  sweep(
      "before the tail", 2.1,
      [](float t) { return t >= 0 && t < 100 ? 1 - normal_tail<float>(t).beyond : 0.0f; },
      [&](double t) { return t >= 0 && t < 100 ? 1 - exact(t) : 0.0; });
  EXPECT_EQ(normal_tail<float>(0.0f).beyond, 0.5f);
  EXPECT_EQ(normal_tail<float>(0.0f).exponential, 1.0f);
  EXPECT_EQ(normal_tail<float>(14.0f).beyond, 0.0f);
  EXPECT_TRUE(std::isnan(normal_tail<float>(NAN).beyond));
}

TEST(VectorMathSpecial, Values) {
  EXPECT_EQ(vector_exp(0.0f), 1.0f);
  EXPECT_EQ(vector_exp(-INFINITY), 0.0f);
  EXPECT_EQ(vector_exp(INFINITY), INFINITY);
  EXPECT_EQ(vector_exp(89.0f), INFINITY);
  EXPECT_EQ(vector_exp(-104.0f), 0.0f);
  EXPECT_NEAR(vector_exp(-87.33f) / std::exp(static_cast<double>(-87.33f)), 1.0, 1e-6);
  EXPECT_EQ(vector_exp(-87.34f), 0.0f);  // no subnormal numbers
  EXPECT_EQ(vector_exp(1e30f), INFINITY);
  EXPECT_EQ(vector_exp(-1e30f), 0.0f);
  for (const std::uint32_t payload : {0x7fc00001u, 0x7f800001u, 0xffffffffu}) {
    float nan;
    std::memcpy(&nan, &payload, sizeof(nan));
    EXPECT_TRUE(std::isnan(vector_exp(nan)));
    EXPECT_TRUE(std::isnan(vector_log(nan)));
  }
  EXPECT_TRUE(std::isnan(vector_exp(NAN)));
  EXPECT_EQ(vector_log(1.0f), 0.0f);
  EXPECT_EQ(vector_log(0.0f), -INFINITY);
  EXPECT_EQ(vector_log(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(vector_log(-1.0f)));
  EXPECT_TRUE(std::isnan(vector_log(NAN)));
}

}  // namespace
}  // namespace trireme::kernels

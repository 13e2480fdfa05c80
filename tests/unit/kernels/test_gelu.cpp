// Bias and GeLU against the tanh formula in long double, on odd sizes and over the whole
// range of arguments.
#include "kernels/gelu.hpp"

#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

const long double kRoot = std::sqrt(2.0L / std::acos(-1.0L));

double gelu(double z) {
  const long double u = kRoot * (z + 0.044715L * z * z * z);
  return static_cast<double>(0.5L * z * (1 + std::tanh(u)));
}

double gelu_slope(double z) {
  const long double u = kRoot * (z + 0.044715L * z * z * z);
  const long double t = std::tanh(u);
  return static_cast<double>(0.5L * (1 + t) + 0.5L * z * (1 - t * t) * kRoot *
                                                  (1 + 3 * 0.044715L * z * z));
}

template <class T>
class GeluOf : public ::testing::Test {};
TYPED_TEST_SUITE(GeluOf, test::RealTypes);

TYPED_TEST(GeluOf, MatchesReference) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const double u = test::rounding<T>(), ua = test::rounding<A>();
  for (const index_t rows : {1, 31, 33, 257}) {
    for (const index_t f : {1, 31, 33, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << f);
      const Array<T> x(test::uniform(rows * f, 1, -4, 4)), bias(test::uniform(f, 2)),
          d_y(test::uniform(rows * f, 3)), y(rows * f), d_x(rows * f);
      const auto xs = x.values(), bs = bias.values(), ds = d_y.values();
      std::vector<double> want(rows * f), want_d(rows * f);
      for (index_t i = 0; i < rows * f; ++i) {
        want[i] = gelu(xs[i] + bs[i % f]);
        want_d[i] = ds[i] * gelu_slope(xs[i] + bs[i % f]);
      }
      bias_gelu_forward<T>(Exec(), x.cmatrix(rows, f), bias.cvector(), y.matrix(rows, f));
      bias_gelu_backward<T>(Exec(), d_y.cmatrix(rows, f), x.cmatrix(rows, f),
                            bias.cvector(), d_x.matrix(rows, f));
      test::expect_close(y.values(), want, u + 8 * ua, 1, "y");
      test::expect_close(d_x.values(), want_d, u + 16 * ua, 1, "d_x");
      // In place.
      const Array<T> over(ds);
      bias_gelu_backward<T>(Exec(), over.cmatrix(rows, f), x.cmatrix(rows, f),
                            bias.cvector(), over.matrix(rows, f));
      EXPECT_EQ(over.bytes(), d_x.bytes());
    }
  }
}

// No infinity times zero, no lost tails: z from -60 to 60, and the extremes.
TEST(GeluRange, Tails) {
  std::vector<double> zs;
  for (double z = -60; z <= 60; z += 0.03125) zs.push_back(z);
  for (const double z : {1e10, -1e10, 3e38, -3e38, 0.0}) zs.push_back(z);
  const auto n = static_cast<index_t>(zs.size());
  const Array<float> x(zs), bias(n), d_y(n, 1.0), y(n), d_x(n);
  bias_gelu_forward<float>(Exec(), x.cmatrix(1, n), bias.cvector(), y.matrix(1, n));
  bias_gelu_backward<float>(Exec(), d_y.cmatrix(1, n), x.cmatrix(1, n), bias.cvector(),
                            d_x.matrix(1, n));
  const auto got = y.values(), slope = d_x.values();
  for (std::size_t i = 0; i < zs.size(); ++i) {
    const double z = zs[i];
    // Relative in the exponent: exp(-2u) turns an error of u into one of 2 |u| ulp.
    const double bound = 4e-7 * (1 + std::abs(gelu(z)));
    EXPECT_NEAR(got[i], std::abs(z) > 1e9 ? (z > 0 ? z : 0.0) : gelu(z), bound) << z;
    if (std::abs(z) <= 60) {
      EXPECT_NEAR(slope[i], gelu_slope(z), 2e-6) << z;
    }
    EXPECT_TRUE(std::isfinite(got[i])) << z;
  }
}

TEST(GeluRange, NotANumberStays) {
  const Array<float> x({NAN}), bias(1), y(1);
  bias_gelu_forward<float>(Exec(), x.cmatrix(1, 1), bias.cvector(), y.matrix(1, 1));
  EXPECT_TRUE(std::isnan(y.values()[0]));
}

}  // namespace
}  // namespace trireme::kernels

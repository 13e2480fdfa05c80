// GeLU and its gradient against the tanh formula in long double, on odd sizes and over
// the whole range of arguments.
#include "kernels/gelu.hpp"

#include "kernels/reductions.hpp"
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
    for (const index_t f : {1, 16, 31, 33, 64, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << f);
      const index_t blocks = tiled_partial_count(rows, f);
      const Array<T> z(test::uniform(rows * f, 1, -5, 5)),
          d_y(test::uniform(rows * f, 3)), y(rows * f), d_z(rows * f);
      const Array<A> partials(blocks * f, NAN), d_bias(f), d_bias_want(f),
          scratch(sum_rows_scratch_elements(f));
      const auto zs = z.values(), ds = d_y.values();
      std::vector<double> want(rows * f), want_d(rows * f);
      for (index_t i = 0; i < rows * f; ++i) {
        want[i] = gelu(zs[i]);
        want_d[i] = ds[i] * gelu_slope(zs[i]);
      }
      gelu_forward<T>(Exec(), z.cmatrix(rows, f), y.matrix(rows, f));
      gelu_backward<T>(Exec(), d_y.cmatrix(rows, f), z.cmatrix(rows, f),
                       d_z.matrix(rows, f), partials.matrix(blocks, f));
      test::expect_close(y.values(), want, u + 8 * ua, 1, "y");
      test::expect_close(d_z.values(), want_d, u + 16 * ua, 1, "d_z");
      // The partial sums are those that a pass over d_z makes, to the bit.
      add_partials<A>(Exec(), partials.cmatrix(blocks, f), Accumulate::no,
                      d_bias.vector());
      sum_rows<T>(Exec(), d_z.cmatrix(rows, f), scratch.vector(), Accumulate::no,
                  d_bias_want.vector());
      EXPECT_EQ(d_bias.bytes(), d_bias_want.bytes());
      // In place.
      const Array<T> over(ds), over_z(zs);
      gelu_backward<T>(Exec(), over.cmatrix(rows, f), z.cmatrix(rows, f),
                       over.matrix(rows, f), partials.matrix(blocks, f));
      EXPECT_EQ(over.bytes(), d_z.bytes());
      gelu_forward<T>(Exec(), over_z.cmatrix(rows, f), over_z.matrix(rows, f));
      EXPECT_EQ(over_z.bytes(), y.bytes());
    }
  }
}

// No infinity times zero, no lost tails: z from -60 to 60, and the extremes.
TEST(GeluRange, Tails) {
  std::vector<double> zs;
  for (double z = -60; z <= 60; z += 0.03125) zs.push_back(z);
  for (const double z : {1e10, -1e10, 3e38, -3e38, 0.0}) zs.push_back(z);
  const auto n = static_cast<index_t>(zs.size());
  const Array<float> z_row(zs), d_y(n, 1.0), y(n), d_z(n), partials(n);
  gelu_forward<float>(Exec(), z_row.cmatrix(1, n), y.matrix(1, n));
  gelu_backward<float>(Exec(), d_y.cmatrix(1, n), z_row.cmatrix(1, n), d_z.matrix(1, n),
                       partials.matrix(1, n));
  const auto got = y.values(), slope = d_z.values();
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
  const Array<float> z({NAN}), y(1);
  gelu_forward<float>(Exec(), z.cmatrix(1, 1), y.matrix(1, 1));
  EXPECT_TRUE(std::isnan(y.values()[0]));
}

}  // namespace
}  // namespace trireme::kernels

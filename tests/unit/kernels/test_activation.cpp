// Activations and their gradients, alone and gated, against their formulae in long
// double, on odd sizes and over the whole range of arguments.
#include "kernels/activation.hpp"

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

const long double kPi = std::acos(-1.0L);
const long double kRoot = std::sqrt(2.0L / kPi);

double value_of(Activation activation, double z) {
  switch (activation) {
    case Activation::gelu_tanh:
      return static_cast<double>(0.5L * z *
                                 (1 + std::tanh(kRoot * (z + 0.044715L * z * z * z))));
    case Activation::gelu_erf:
      return static_cast<double>(0.5L * z * std::erfc(-z / std::sqrt(2.0L)));
    case Activation::relu:
      return std::max(z, 0.0);
    default:
      return std::tanh(z);
  }
}

double slope_of(Activation activation, double z) {
  switch (activation) {
    case Activation::gelu_tanh: {
      const long double t = std::tanh(kRoot * (z + 0.044715L * z * z * z));
      return static_cast<double>(0.5L * (1 + t) + 0.5L * z * (1 - t * t) * kRoot *
                                                      (1 + 3 * 0.044715L * z * z));
    }
    case Activation::gelu_erf:
      return static_cast<double>(0.5L * std::erfc(-z / std::sqrt(2.0L)) +
                                 z * std::exp(-0.5L * z * z) / std::sqrt(2 * kPi));
    case Activation::relu:
      return z > 0 ? 1 : 0;
    default:
      return 1 - std::tanh(z) * std::tanh(z);
  }
}

constexpr Activation kAll[] = {Activation::gelu_tanh, Activation::gelu_erf,
                               Activation::relu, Activation::tanh};

template <class T>
class ActivationOf : public ::testing::Test {
 protected:
  using A = Accumulator<T>;
  static constexpr double u = test::rounding<T>(), ua = test::rounding<A>();

  static void check(Activation activation, index_t rows, index_t f) {
    SCOPED_TRACE(::testing::Message() << "activation " << static_cast<int>(activation)
                                      << ", " << rows << " x " << f);
    const index_t blocks = tiled_partial_count(rows, f);
    const Array<T> z(test::uniform(rows * f, 1, -5, 5)), d_y(test::uniform(rows * f, 3)),
        y(rows * f), d_z(rows * f);
    const Array<A> partials(blocks * f, NAN), d_bias(f), d_bias_want(f),
        scratch(sum_rows_scratch_elements(f));
    const auto zs = z.values(), ds = d_y.values();
    std::vector<double> want(rows * f), want_d(rows * f);
    for (index_t i = 0; i < rows * f; ++i) {
      want[i] = value_of(activation, zs[i]);
      want_d[i] = ds[i] * slope_of(activation, zs[i]);
    }
    activation_forward<T>(Exec(), activation, z.cmatrix(rows, f), y.matrix(rows, f));
    activation_backward<T>(Exec(), activation, d_y.cmatrix(rows, f), z.cmatrix(rows, f),
                           d_z.matrix(rows, f), partials.matrix(blocks, f));
    test::expect_close(y.values(), want, u + 8 * ua, 1, "y");
    test::expect_close(d_z.values(), want_d, u + 16 * ua, 1, "d_z");
    // The partial sums are those that a pass over d_z makes, to the bit.
    add_partials<A>(Exec(), partials.cmatrix(blocks, f), Accumulate::no, d_bias.vector());
    sum_rows<T>(Exec(), d_z.cmatrix(rows, f), scratch.vector(), Accumulate::no,
                d_bias_want.vector());
    EXPECT_EQ(d_bias.bytes(), d_bias_want.bytes());
    // In place, with sums and without.
    for (const bool has_sums : {true, false}) {
      const Array<T> over(ds);
      activation_backward<T>(Exec(), activation, over.cmatrix(rows, f),
                             z.cmatrix(rows, f), over.matrix(rows, f),
                             has_sums ? partials.matrix(blocks, f) : View2<A>());
      EXPECT_EQ(over.bytes(), d_z.bytes());
    }
    const Array<T> over_z(zs);
    activation_forward<T>(Exec(), activation, over_z.cmatrix(rows, f),
                          over_z.matrix(rows, f));
    EXPECT_EQ(over_z.bytes(), y.bytes());
  }

  static void check_gated(Activation activation, index_t rows, index_t f) {
    SCOPED_TRACE(::testing::Message() << "gated " << static_cast<int>(activation) << ", "
                                      << rows << " x " << f);
    const Array<T> z(test::uniform(2 * rows * f, 1, -5, 5)),
        d_y(test::uniform(rows * f, 3)), y(rows * f), d_z(2 * rows * f);
    const auto zs = z.values(), ds = d_y.values();
    std::vector<double> want(rows * f), want_d(2 * rows * f);
    for (index_t r = 0; r < rows; ++r) {
      for (index_t j = 0; j < f; ++j) {
        const index_t gate = 2 * r * f + j, up = gate + f, at = r * f + j;
        want[at] = value_of(activation, zs[gate]) * zs[up];
        want_d[gate] = ds[at] * zs[up] * slope_of(activation, zs[gate]);
        want_d[up] = ds[at] * value_of(activation, zs[gate]);
      }
    }
    gated_forward<T>(Exec(), activation, z.cmatrix(rows, 2 * f), y.matrix(rows, f));
    gated_backward<T>(Exec(), activation, d_y.cmatrix(rows, f), z.cmatrix(rows, 2 * f),
                      d_z.matrix(rows, 2 * f));
    test::expect_close(y.values(), want, u + 8 * ua, 5, "y");
    test::expect_close(d_z.values(), want_d, u + 16 * ua, 5, "d_z");
    const Array<T> over(zs);
    gated_backward<T>(Exec(), activation, d_y.cmatrix(rows, f), over.cmatrix(rows, 2 * f),
                      over.matrix(rows, 2 * f));
    EXPECT_EQ(over.bytes(), d_z.bytes());
  }
};
TYPED_TEST_SUITE(ActivationOf, test::RealTypes);

TYPED_TEST(ActivationOf, MatchesReference) {
  for (const Activation activation : kAll) {
    for (const index_t rows : {1, 31, 33, 257}) {
      for (const index_t f : {1, 16, 31, 33, 64, 257}) {
        TestFixture::check(activation, rows, f);
      }
    }
  }
}

TYPED_TEST(ActivationOf, GatedMatchesReference) {
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
    for (const index_t rows : {1, 33}) {
      for (const index_t f : {1, 16, 31, 64, 257}) {
        TestFixture::check_gated(activation, rows, f);
      }
    }
  }
}

std::vector<double> whole_range() {
  std::vector<double> zs;
  for (double z = -60; z <= 60; z += 0.03125) zs.push_back(z);
  for (const double z : {1e10, -1e10, 3e38, -3e38, 0.0}) zs.push_back(z);
  return zs;
}

// No infinity times zero, no lost tails: z from -60 to 60, and the extremes.
TEST(ActivationRange, Tails) {
  const std::vector<double> zs = whole_range();
  const auto n = static_cast<index_t>(zs.size());
  const Array<float> z_row(zs), d_y(n, 1.0), y(n), d_z(n);
  for (const Activation activation : kAll) {
    activation_forward<float>(Exec(), activation, z_row.cmatrix(1, n), y.matrix(1, n));
    activation_backward<float>(Exec(), activation, d_y.cmatrix(1, n), z_row.cmatrix(1, n),
                               d_z.matrix(1, n), {});
    const auto got = y.values(), slope = d_z.values();
    for (std::size_t i = 0; i < zs.size(); ++i) {
      const double z = zs[i];
      SCOPED_TRACE(::testing::Message() << static_cast<int>(activation) << " of " << z);
      const bool is_extreme = std::abs(z) > 1e9;
      const double at_end =
          activation == Activation::tanh ? std::copysign(1.0, z) : (z > 0 ? z : 0.0);
      const double want = is_extreme ? at_end : value_of(activation, z);
      // Of GeLU's tanh form relative in the exponent: exp(-2u) turns an error of u into
      // one of 2 |u| ulp.
      EXPECT_NEAR(got[i], want, 4e-7 * (1 + std::abs(want)));
      if (!is_extreme) {
        EXPECT_NEAR(slope[i], slope_of(activation, z), 2e-6);
      }
      EXPECT_TRUE(std::isfinite(got[i]));
      EXPECT_TRUE(std::isfinite(slope[i]));
    }
  }
}

// z Phi(z) keeps its digits where Phi is small, which 1 + erf would not.
TEST(ActivationRange, GeluByErfKeepsItsDigits) {
  if (!kHostExecution) GTEST_SKIP() << "a GPU's exp has another exponent's rounding";
  std::vector<double> zs;
  for (double z = -12; z < 0; z += 0.0078125) zs.push_back(z);
  const auto n = static_cast<index_t>(zs.size());
  const Array<float> z_row(zs), y(n);
  activation_forward<float>(Exec(), Activation::gelu_erf, z_row.cmatrix(1, n),
                            y.matrix(1, n));
  const auto got = y.values();
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  constexpr double kError = 4e-7;
#else
  constexpr double kError = 5e-6;
#endif
  for (std::size_t i = 0; i < zs.size(); ++i) {
    const double want = value_of(Activation::gelu_erf, zs[i]);
    EXPECT_NEAR(got[i] / want, 1, kError) << zs[i];
  }
}

TEST(ActivationRange, NotANumberStays) {
  const Array<float> z({NAN, NAN}), y(2), d_y(2, 1.0), d_z(2);
  for (const Activation activation : kAll) {
    activation_forward<float>(Exec(), activation, z.cmatrix(1, 2), y.matrix(1, 2));
    EXPECT_TRUE(std::isnan(y.values()[0])) << static_cast<int>(activation);
    if (activation == Activation::relu) continue;  // its slope is 0 or 1
    activation_backward<float>(Exec(), activation, d_y.cmatrix(1, 2), z.cmatrix(1, 2),
                               d_z.matrix(1, 2), {});
    EXPECT_TRUE(std::isnan(d_z.values()[0])) << static_cast<int>(activation);
  }
}

TEST(ActivationErrors, AreClear) {
  const Array<float> z(6), y(6), small(3);
  const auto text_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(text_of([&] {
              activation_forward<float>(Exec(), Activation::none, z.cmatrix(2, 3),
                                        y.matrix(2, 3));
            }).find("activation_forward: there is none of this activation"),
            std::string::npos);
  EXPECT_NE(text_of([&] {
              gated_forward<float>(Exec(), Activation::tanh, z.cmatrix(1, 6),
                                   small.matrix(1, 3));
            }).find("gated_forward: there is none of this activation"),
            std::string::npos);
  EXPECT_NE(text_of([&] {
              gated_forward<float>(Exec(), Activation::relu, z.cmatrix(2, 3),
                                   small.matrix(1, 3));
            }).find("z is (2, 3), expected (1, 6)"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::kernels

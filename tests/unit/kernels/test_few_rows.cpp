// Products of few rows: the definition, on odd sizes; the same bits for a row whatever
// rows are beside it, and with one thread and with several.
#include "kernels/few_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.hpp"
#include "kernels/gemm.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using Values = std::vector<double>;

template <class T>
class FewRowsOf : public testing::Test {
 protected:
  // y (rows, out) of the first rows of x.
  static Values product(const test::Array<T>& x, const test::Array<T>& w, index_t rows,
                        index_t out, index_t in, const Exec& exec = Exec()) {
    const test::Array<T> y(rows * out, -7.0);
    few_rows_product<T>(exec, x.cmatrix(rows, in), w.cmatrix(out, in),
                        y.matrix(rows, out));
    exec.fence("test");
    return y.values();
  }
};
using Types = testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(FewRowsOf, Types);

TYPED_TEST(FewRowsOf, MatchesReference) {
  using T = TypeParam;
  for (index_t rows = 1; rows <= kFewRows; ++rows) {
    for (const index_t out : {1, 31, 33, 257}) {
      for (const index_t in : {1, 31, 33, 96, 257}) {
        const test::Array<T> x(test::uniform(rows * in, 1)),
            w(test::uniform(out * in, 2));
        const Values xs = x.values(), ws = w.values();
        Values want(rows * out), scale(rows * out);
        for (index_t m = 0; m < rows; ++m) {
          for (index_t n = 0; n < out; ++n) {
            for (index_t k = 0; k < in; ++k) {
              want[m * out + n] += xs[m * in + k] * ws[n * in + k];
            }
          }
        }
        const Values got = this->product(x, w, rows, out, in);
        const double of_sums =
            8 * std::sqrt(in) * std::numeric_limits<Accumulator<T>>::epsilon();
        test::expect_close(got, want, test::rounding<T>() + of_sums, 1, "y");
      }
    }
  }
}

TYPED_TEST(FewRowsOf, ARowHasTheBitsThatItHasAlone) {
  using T = TypeParam;
  constexpr index_t kOut = 123, kIn = 333;
  const test::Array<T> x(test::uniform(kFewRows * kIn, 1)),
      w(test::uniform(kOut * kIn, 2));
  const Values all = this->product(x, w, kFewRows, kOut, kIn);
  const Values xs = x.values();
  // Rows [begin, begin + rows) of x, by themselves.
  const auto product_of = [&](index_t begin, index_t rows) {
    const auto from = xs.begin() + begin * kIn;
    const test::Array<T> some(Values(from, from + rows * kIn));
    return this->product(some, w, rows, kOut, kIn);
  };
  const auto part_of_all = [&](index_t begin, index_t rows) {
    const auto from = all.begin() + begin * kOut;
    return Values(from, from + rows * kOut);
  };
  for (index_t rows = 1; rows < kFewRows; ++rows) {
    EXPECT_EQ(product_of(0, rows), part_of_all(0, rows)) << rows;
    EXPECT_EQ(product_of(rows, 1), part_of_all(rows, 1)) << rows;
  }
}

TYPED_TEST(FewRowsOf, ThreadsDoNotChangeBits) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "there is one thread only";
  const test::Array<TypeParam> x(test::uniform(5 * 77, 1)),
      w(test::uniform(1001 * 77, 2));
  const Values several = this->product(x, w, 5, 1001, 77);
  EXPECT_EQ(this->product(x, w, 5, 1001, 77, one.exec), several);
  EXPECT_EQ(this->product(x, w, 5, 1001, 77, Exec().on_one_thread()), several);
  EXPECT_EQ(this->product(x, w, 5, 1001, 77, Exec().with_small_launches_alone()),
            several);
}

// Every number of the narrow types, infinities and NaN too, passes as it is.
TYPED_TEST(FewRowsOf, WidensEveryNumber) {
  using T = TypeParam;
  if constexpr (sizeof(T) == 2) {
    constexpr index_t kOut = 2048, kIn = 32;
    const test::Array<T> w(kOut * kIn), x(kIn, 0.0), y(kOut);
    for (index_t column = 0; column < kIn; ++column) {
      for (index_t i = 0; i < kOut; ++i) {
        // One column has all numbers from column * 2048 on, the others are zero.
        T number;
        number.bits = static_cast<std::uint16_t>(column * kOut + i);
        for (index_t k = 0; k < kIn; ++k) w.matrix(kOut, kIn)(i, k) = T(0.0f);
        w.matrix(kOut, kIn)(i, column) = number;
      }
      for (index_t k = 0; k < kIn; ++k) x.vector()(k) = T(k == column ? 1.0f : 0.0f);
      few_rows_product<T>(Exec(), x.cmatrix(1, kIn), w.cmatrix(kOut, kIn),
                          y.matrix(1, kOut));
      Exec().fence("test");
      for (index_t i = 0; i < kOut; ++i) {
        const float want = w.matrix(kOut, kIn)(i, column);
        const float got = y.vector()(i);
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
            << column * kOut + i << ": " << got << ", expected " << want;
      }
    }
  }
}

template <class T>
View2<T> rows_of(const test::Array<std::remove_const_t<T>>& array, index_t rows,
                 index_t columns) {
  return {array.vector().data(), extent(rows), extent(columns)};
}

TEST(FewRowsErrors, AreNamed) {
  const test::Array<float> x(17 * 3, 1.0), w(5 * 3, 1.0), y(17 * 5);
  const auto product = [&](index_t rows, index_t in) {
    few_rows_product<float>(Exec(), rows_of<const float>(x, rows, in), w.cmatrix(5, 3),
                            rows_of<float>(y, rows, 5));
  };
  EXPECT_THAT([&] { product(17, 3); }, testing::ThrowsMessage<Error>(testing::HasSubstr(
                                           "a product of 17 rows: few are 16 at most")));
  EXPECT_THROW(product(2, 4), Error);
  EXPECT_NO_THROW(product(0, 3));
}

// Layers come here by the number of their rows.
TEST(FewRowsCalls, LinearForwardTakesThemUpToSixteen) {
  const test::Array<float> x(17 * 3, 1.0), w(5 * 3, 1.0), y(17 * 5);
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  for (const index_t rows : {1, 16, 17}) {
    linear_forward<float>(exec, rows_of<const float>(x, rows, 3),
                          WeightOperand<float>(w.cmatrix(5, 3)),
                          rows_of<float>(y, rows, 5));
  }
  const KernelTally few = tally.kernel("trireme::kernels::few_rows_product");
  EXPECT_EQ(few.calls, 2);
  EXPECT_EQ(few.cost.flops, 2.0 * 17 * 3 * 5);
  EXPECT_EQ(few.cost.bytes, 4 * (17 * 3 + 2 * 15 + 17 * 5));
  EXPECT_EQ(tally.kernel("trireme::kernels::gemm").calls, 1);
}

}  // namespace
}  // namespace trireme::kernels

// Sums over rows, sums of squares and counts of non-finite numbers.
#include "kernels/reductions.hpp"

#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

template <class T>
class ReductionsOf : public ::testing::Test {};
TYPED_TEST_SUITE(ReductionsOf, test::RealTypes);

TYPED_TEST(ReductionsOf, SumRows) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t rows : {1, 31, 33, 257, 2000}) {
    for (const index_t columns : {1, 31, 33, 257, 5000}) {
      if (rows * columns > 2000 * 300) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      const Array<T> x(test::uniform(rows * columns, 1));
      const Array<A> scratch(sum_rows_scratch_elements(columns), 1e30),
          sums(test::uniform(columns, 2));
      std::vector<double> want = sums.values();
      const auto xs = x.values();
      for (index_t i = 0; i < rows * columns; ++i) want[i % columns] += xs[i];
      sum_rows<T>(Exec(), x.cmatrix(rows, columns), scratch.vector(), sums.vector());
      test::expect_close(sums.values(), want, 32 * test::rounding<A>(), rows, "sums");
    }
  }
}

TYPED_TEST(ReductionsOf, SquareSum) {
  using T = TypeParam;
  for (const index_t n : {1, 31, 33, 257, 16384, 16385, 100003}) {
    const Array<T> x(test::uniform(n, 1));
    const Array<double> scratch(square_sum_scratch_elements(n), 1e300), total(1, 2.5);
    long double want = 2.5L;
    for (const double v : x.values()) want += static_cast<long double>(v) * v;
    square_sum<T>(Exec(), x.cvector(), scratch.vector(), total.scalar());
    EXPECT_NEAR(total.values()[0], static_cast<double>(want),
                1e-14 * static_cast<double>(want))
        << n;
  }
}

// The squares are taken in double: no overflow, no underflow of float squares.
TEST(ReductionsSquareSum, RangeOfFloat) {
  const Array<float> x({3e38, 1e-30});
  const Array<double> scratch(1), total(1);
  square_sum<float>(Exec(), x.cvector(), scratch.vector(), total.scalar());
  EXPECT_NEAR(total.values()[0] / (9e76), 1.0, 1e-6);
}

TYPED_TEST(ReductionsOf, CountNonFinite) {
  using T = TypeParam;
  std::vector<double> values = test::uniform(40000, 1);
  Array<T> x(values);
  const Array<std::int64_t> count(1, 5.0);
  count_non_finite<T>(Exec(), x.cvector(), count.scalar());
  EXPECT_EQ(count.values()[0], 5);
  values[0] = NAN;
  values[17000] = INFINITY;
  values[17001] = -INFINITY;
  values[39999] = -NAN;
  x.set(values);
  count_non_finite<T>(Exec(), x.cvector(), count.scalar());
  EXPECT_EQ(count.values()[0], 9);
}

TEST(ReductionsEmpty, NothingToAdd) {
  const Array<double> scratch(1), total(1, 3.0);
  const Array<std::int64_t> count(1, 2.0);
  square_sum<float>(Exec(), View1<const float>(nullptr, 0), scratch.vector(),
                    total.scalar());
  count_non_finite<float>(Exec(), View1<const float>(nullptr, 0), count.scalar());
  EXPECT_EQ(total.values()[0], 3.0);
  EXPECT_EQ(count.values()[0], 2);
}

TEST(ReductionsOrder, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const index_t rows = 1003, columns = 97;
  const Array<float> x(test::uniform(rows * columns, 1));
  std::vector<unsigned char> bits[2];
  for (const bool alone : {false, true}) {
    const Exec exec = alone ? one.exec : Exec();
    const Array<float> scratch(sum_rows_scratch_elements(columns)), sums(columns);
    const Array<double> partial(square_sum_scratch_elements(rows * columns)), total(1);
    sum_rows<float>(exec, x.cmatrix(rows, columns), scratch.vector(), sums.vector());
    square_sum<float>(exec, x.cvector(), partial.vector(), total.scalar());
    exec.fence("test");
    bits[alone] = sums.bytes();
    const auto more = total.bytes();
    bits[alone].insert(bits[alone].end(), more.begin(), more.end());
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(ReductionsShapes, ShortScratchIsRefused) {
  const Array<float> x(12), scratch(1), sums(3);
  EXPECT_THROW(sum_rows<float>(Exec(), x.cmatrix(4, 3), scratch.vector(), sums.vector()),
               std::exception);
}

}  // namespace
}  // namespace trireme::kernels

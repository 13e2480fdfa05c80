// Sums over rows and counts of non-finite numbers.
#include "kernels/reductions.hpp"

#include <span>
#include <vector>

#include "base/error.hpp"
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
    for (const index_t columns : {1, 31, 33, 64, 257, 5000}) {
      if (rows * columns > 2000 * 300) continue;
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      const Array<T> x(test::uniform(rows * columns, 1));
      const Array<A> scratch(sum_rows_scratch_elements(columns), 1e30),
          sums(test::uniform(columns, 2));
      std::vector<double> want = sums.values();
      const auto xs = x.values();
      for (index_t i = 0; i < rows * columns; ++i) want[i % columns] += xs[i];
      sum_rows<T>(Exec(), x.cmatrix(rows, columns), scratch.vector(), Accumulate::yes,
                  sums.vector());
      test::expect_close(sums.values(), want, 32 * test::rounding<A>(), rows, "sums");
      // Over what was there, whatever it was: the bits of a sum that begins at zero.
      const Array<A> from_zero(columns), over(columns, NAN);
      sum_rows<T>(Exec(), x.cmatrix(rows, columns), scratch.vector(), Accumulate::yes,
                  from_zero.vector());
      sum_rows<T>(Exec(), x.cmatrix(rows, columns), scratch.vector(), Accumulate::no,
                  over.vector());
      EXPECT_EQ(over.bytes(), from_zero.bytes());
    }
  }
}

// Several sums of one launch have the bits that each has alone, and touch no other: of
// unlike widths, of fewer and more columns than a work item takes, with and without what
// was there.
TYPED_TEST(ReductionsOf, PartialsOfSeveralSums) {
  using A = Accumulator<TypeParam>;
  const index_t columns[] = {768, 1, 2304, 256, 257, 31, 5, 300};
  std::vector<Array<A>> partials, together, alone;
  std::vector<PartialSum<A>> all;
  for (std::size_t i = 0; i < kMostPartialSums; ++i) {
    const auto seed = static_cast<unsigned>(i);
    const auto blocks = static_cast<index_t>(1 + 9 * i);
    const index_t n = columns[i];
    partials.emplace_back(test::uniform(blocks * n, seed));
    together.emplace_back(test::uniform(n, 20 + seed));
    alone.emplace_back(together.back().values());
    all.push_back({partials.back().cmatrix(blocks, n),
                   i % 3 == 1 ? Accumulate::yes : Accumulate::no,
                   together.back().vector()});
    add_partials<A>(Exec(), all.back().partials, all.back().accumulate,
                    alone.back().vector());
  }
  for (const std::size_t count : {std::size_t{3}, kMostPartialSums}) {
    add_partials<A>(Exec(), std::span<const PartialSum<A>>(all).first(count));
    for (std::size_t i = 0; i < kMostPartialSums; ++i) {
      if (i % 3 == 1 && count == kMostPartialSums) continue;  // added twice by now
      EXPECT_EQ(together[i].bytes() == alone[i].bytes(), i < count) << i;
    }
  }
  all.push_back(all.front());
  EXPECT_THROW(add_partials<A>(Exec(), std::span<const PartialSum<A>>(all)), Error);
}

// As many blocks as a GPU's teams leave: a thread has dozens of them.
TYPED_TEST(ReductionsOf, PartialsOfManyBlocks) {
  using A = Accumulator<TypeParam>;
  for (const index_t blocks : {512, 513, 1100}) {
    const index_t columns = 9;
    const Array<A> partials(test::uniform(blocks * columns, 4)), sums(columns, 2.0);
    add_partials<A>(Exec(), partials.cmatrix(blocks, columns), Accumulate::yes,
                    sums.vector());
    const auto from = partials.values();
    std::vector<double> want(columns, 2.0);
    for (index_t i = 0; i < blocks * columns; ++i) want[i % columns] += from[i];
    test::expect_close(sums.values(), want, 64 * test::rounding<A>(), 8, "sums");
  }
}

// Sums of 16 bits are those of float, what was there included, rounded once.
TEST(ReductionsNarrow, SumsAreRoundedOnce) {
  for (const index_t rows : {1, 33, 2000}) {
    for (const index_t columns : {1, 31, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      const Array<bf16> x(test::uniform(rows * columns, 1)),
          before(test::uniform(columns, 2, -300, 300));
      const Array<float> scratch(sum_rows_scratch_elements(columns));
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const bool adds = accumulate == Accumulate::yes;
        const Array<float> want(before.values());
        const Array<bf16> sums(adds ? before.values()
                                    : std::vector<double>(extent(columns), NAN));
        sum_rows<bf16>(Exec(), x.cmatrix(rows, columns), scratch.vector(), accumulate,
                       want.vector());
        sum_rows<bf16, bf16>(Exec(), x.cmatrix(rows, columns), scratch.vector(),
                             accumulate, sums.vector());
        test::expect_close(sums.values(), want.values(), 1.001 * test::rounding<bf16>(),
                           1e-3, "sums");
      }
    }
  }
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
  const Array<std::int64_t> count(1, 2.0);
  count_non_finite<float>(Exec(), View1<const float>(nullptr, 0), count.scalar());
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
    sum_rows<float>(exec, x.cmatrix(rows, columns), scratch.vector(), Accumulate::no,
                    sums.vector());
    exec.fence("test");
    bits[alone] = sums.bytes();
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(ReductionsShapes, ShortScratchIsRefused) {
  const Array<float> x(12), scratch(1), sums(3);
  EXPECT_THROW(sum_rows<float>(Exec(), x.cmatrix(4, 3), scratch.vector(), Accumulate::no,
                               sums.vector()),
               std::exception);
}

}  // namespace
}  // namespace trireme::kernels

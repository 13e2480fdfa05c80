// Look-up and scatter-add, with the table cut in shards and ids as skewed as words are.
#include "kernels/embedding.hpp"

#include "kernels/impl/embedding_chains.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

std::vector<double> random_ids(index_t rows, index_t vocabulary, unsigned seed) {
  // Zipf-like: half of all ids among the first few.
  std::vector<double> ids = test::uniform(rows, seed, 0.0, 1.0);
  for (double& id : ids) id = std::floor(vocabulary * std::pow(id, 4.0));
  return ids;
}

template <class T>
class EmbeddingOf : public ::testing::Test {};
TYPED_TEST_SUITE(EmbeddingOf, test::RealTypes);

TYPED_TEST(EmbeddingOf, ForwardMatchesReferenceOnShards) {
  using T = TypeParam;
  for (const index_t rows : {1, 31, 257}) {
    for (const index_t h : {1, 31, 33, 257}) {
      const index_t vocabulary = 40;
      const Array<std::int32_t> ids(random_ids(rows, vocabulary, 1));
      const Array<T> table(test::uniform(vocabulary * h, 2)),
          y(test::uniform(rows * h, 3));
      const auto id = ids.values(), t = table.values(), before = y.values();
      std::vector<double> want(rows * h), sum(rows * h);
      for (index_t i = 0; i < rows * h; ++i) {
        want[i] = t[static_cast<index_t>(id[i / h]) * h + i % h];
        sum[i] = before[i] + want[i];
      }
      embedding_forward<T>(Exec(), ids.cvector(), table.cmatrix(vocabulary, h), 0,
                           Write::add, y.matrix(rows, h));
      test::expect_close(y.values(), sum, test::rounding<T>(), 0.01, "added");
      embedding_forward<T>(Exec(), ids.cvector(), table.cmatrix(vocabulary, h), 0,
                           Write::overwrite, y.matrix(rows, h));
      EXPECT_EQ(y.values(), want);
      // Three shards of the table: each row is in exactly one, zero in the others.
      std::vector<double> total(rows * h);
      for (const auto& [begin, end] : {std::pair{0, 7}, {7, 30}, {30, 40}}) {
        const View2<const T> shard(table.vector().data() + begin * h, end - begin, h);
        embedding_forward<T>(Exec(), ids.cvector(), shard, begin, Write::overwrite,
                             y.matrix(rows, h));
        const auto part = y.values();
        for (index_t i = 0; i < rows * h; ++i) {
          const bool is_here = id[i / h] >= begin && id[i / h] < end;
          ASSERT_EQ(part[i], is_here ? want[i] : 0.0);
          total[i] += part[i];
        }
      }
      EXPECT_EQ(total, want);
    }
  }
}

TYPED_TEST(EmbeddingOf, BackwardMatchesReferenceOnShards) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t rows : {1, 31, 1025}) {
    for (const index_t h : {1, 31, 33, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h);
      const index_t vocabulary = 40, begin = 5, held = 20;
      const Array<std::int32_t> ids(random_ids(rows, vocabulary, 4));
      const Array<T> d_y(test::uniform(rows * h, 5));
      const auto before = test::uniform(held * h, 6);
      const Array<A> d_table(before), by_chains(before);
      const auto id = ids.values(), d = d_y.values();
      std::vector<double> want = d_table.values();
      for (index_t i = 0; i < rows * h; ++i) {
        const auto row = static_cast<index_t>(id[i / h]) - begin;
        if (row >= 0 && row < held) want[row * h + i % h] += d[i];
      }
      const Array<std::int32_t> scratch(embedding_scratch_elements(rows)),
          chains(2 * rows, -7);
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::yes, d_table.matrix(held, h));
      test::expect_close(d_table.values(), want,
                         4 * std::sqrt(rows) * test::rounding<A>(), 8, "d_table");
      embedding_backward_chains<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                   chains.vector(), Accumulate::yes,
                                   by_chains.matrix(held, h));
      EXPECT_EQ(by_chains.bytes(), d_table.bytes());  // the same order of summation

      // Over what was there, whatever it was: the bits of sums that begin at zero.
      const Array<A> from_zero(held * h), over(held * h, NAN),
          over_by_chains(held * h, NAN);
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::yes, from_zero.matrix(held, h));
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::no, over.matrix(held, h));
      embedding_backward_chains<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                   chains.vector(), Accumulate::no,
                                   over_by_chains.matrix(held, h));
      EXPECT_EQ(over.bytes(), from_zero.bytes());
      EXPECT_EQ(over_by_chains.bytes(), from_zero.bytes());
    }
  }
}

TEST(EmbeddingOrder, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const index_t rows = 2000, h = 100, vocabulary = 50;
  const Array<std::int32_t> ids(random_ids(rows, vocabulary, 1)), scratch(2 * rows);
  const Array<float> d_y(test::uniform(rows * h, 2)), a(vocabulary * h),
      b(vocabulary * h);
  embedding_backward<float>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), 0,
                            scratch.vector(), Accumulate::no, a.matrix(vocabulary, h));
  embedding_backward<float>(one.exec, ids.cvector(), d_y.cmatrix(rows, h), 0,
                            scratch.vector(), Accumulate::no, b.matrix(vocabulary, h));
  one.exec.fence("test");
  EXPECT_EQ(a.bytes(), b.bytes());
}

// One id in every row: the worst case of a skewed distribution.
TEST(EmbeddingOrder, OneIdOnly) {
  const index_t rows = 500, h = 8;
  const Array<std::int32_t> ids(rows, 3.0), scratch(2 * rows);
  const Array<double> d_y(rows * h, 1.0), d_table(5 * h);
  embedding_backward_chains<double>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), 0,
                                    scratch.vector(), Accumulate::no,
                                    d_table.matrix(5, h));
  std::vector<double> want(5 * h);
  for (index_t j = 0; j < h; ++j) want[3 * h + j] = rows;
  EXPECT_EQ(d_table.values(), want);
}

// A stage may have no tokens: the table is zeroed all the same.
TEST(EmbeddingOrder, NoRowsZeroTheTable) {
  const Array<std::int32_t> ids(0), scratch(0);
  const Array<float> d_y(0), d_table(12, 5.0), by_chains(12, 5.0);
  embedding_backward<float>(Exec(), ids.cvector(), d_y.cmatrix(0, 4), 0, scratch.vector(),
                            Accumulate::no, d_table.matrix(3, 4));
  embedding_backward_chains<float>(Exec(), ids.cvector(), d_y.cmatrix(0, 4), 0,
                                   scratch.vector(), Accumulate::no,
                                   by_chains.matrix(3, 4));
  EXPECT_EQ(d_table.values(), std::vector<double>(12));
  EXPECT_EQ(by_chains.values(), std::vector<double>(12));
}

}  // namespace
}  // namespace trireme::kernels

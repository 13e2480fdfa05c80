// Look-up and scatter-add, with the table cut in shards and ids as skewed as words are.
#include "kernels/embedding.hpp"

#include "kernels/impl/embedding_runs.hpp"
#include "kernels/reductions.hpp"
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
    for (const index_t h : {1, 31, 33, 64, 257}) {
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

// Words, positions and dropout in one pass, with the words looked up in it or before.
TYPED_TEST(EmbeddingOf, DropoutInTheSamePass) {
  using T = TypeParam;
  const index_t vocabulary = 40, length = 13;
  const Kokkos::View<StepState, DeviceMemory> step("step");
  for (const double p : {0.0, 0.3}) {
    for (const auto& [rows, h] : {std::pair{1, 1}, {31, 33}, {33, 1100}, {257, 31}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h << ", " << p);
      const DropoutDesc desc{.probability = p, .sequence_begin = 2};
      Array<std::int32_t> ids(random_ids(rows, vocabulary, 1)),
          positions(random_ids(rows, length, 2));
      const Array<T> words(test::uniform(vocabulary * h, 3)),
          places(test::uniform(length * h, 4)), ones(rows * h, 1.0), factor(rows * h),
          y(rows * h, -1.0);
      bias_dropout_add_forward<T>(Exec(), desc, StepStateView(step.data()),
                                  ones.cmatrix(rows, h), {}, {}, factor.matrix(rows, h));
      const auto id = ids.values(), at = positions.values(), w = words.values(),
                 q = places.values(), f = factor.values();
      std::vector<double> want(rows * h);
      for (index_t i = 0; i < rows * h; ++i) {
        const auto word = static_cast<index_t>(id[i / h]) * h + i % h;
        const auto place = static_cast<index_t>(at[i / h]) * h + i % h;
        want[i] = f[i] == 0 ? 0 : (w[word] + q[place]) / (p == 0 ? 1 : 45875.0 / 65536);
      }
      embedding_dropout_forward<T>(Exec(), desc, StepStateView(step.data()),
                                   ids.cvector(), words.cmatrix(vocabulary, h),
                                   positions.cvector(), places.cmatrix(length, h),
                                   y.matrix(rows, h));
      test::expect_close(y.values(), want, 2 * test::rounding<T>(), 2, "y");

      const Array<T> looked_up(rows * h);
      embedding_forward<T>(Exec(), ids.cvector(), words.cmatrix(vocabulary, h), 0,
                           Write::overwrite, looked_up.matrix(rows, h));
      embedding_dropout_forward<T>(Exec(), desc, StepStateView(step.data()), {},
                                   looked_up.cmatrix(rows, h), positions.cvector(),
                                   places.cmatrix(length, h), looked_up.matrix(rows, h));
      EXPECT_EQ(looked_up.bytes(), y.bytes());
    }
  }
}

// An id outside the table, which readers of tokens refuse, reads no memory.
TEST(EmbeddingDropout, RowsThatAreNotThereAreZeros) {
  const Array<std::int32_t> ids{-1, 5, 1000000, 0}, positions{0, -1, 1, 2};
  const Array<float> words(5 * 3, 2.0), places(2 * 3, 0.5), y(4 * 3);
  embedding_dropout_forward<float>(Exec(), {}, {}, ids.cvector(), words.cmatrix(5, 3),
                                   positions.cvector(), places.cmatrix(2, 3),
                                   y.matrix(4, 3));
  EXPECT_EQ(y.values(), (std::vector<double>{.5, .5, .5, 0, 0, 0, .5, .5, .5, 2, 2, 2}));
}

// A third table. Without it, and where its row is not there, the bits of two.
TYPED_TEST(EmbeddingOf, TypesOfTokensInTheSamePass) {
  using T = TypeParam;
  const index_t rows = 31, vocabulary = 40, length = 13;
  const Kokkos::View<StepState, DeviceMemory> step("step");
  for (const double p : {0.0, 0.3}) {
    for (const index_t h : {1, 33, 64, 1100}) {
      SCOPED_TRACE(::testing::Message() << h << ", " << p);
      const DropoutDesc desc{.probability = p, .sequence_begin = 2};
      std::vector<double> ids = random_ids(rows, vocabulary, 1), kinds(rows);
      for (index_t r = 0; r < rows; ++r) kinds[r] = r % 4 == 3 ? 2 : r % 3 % 2;
      ids[5] = -1;
      const Array<std::int32_t> id(ids), positions(random_ids(rows, length, 2)),
          type(kinds);
      const Array<T> words(test::uniform(vocabulary * h, 3)),
          places(test::uniform(length * h, 4)), table(test::uniform(2 * h, 5)),
          ones(rows * h, 1.0), factor(rows * h), two(rows * h), y(rows * h, NAN);
      bias_dropout_add_forward<T>(Exec(), desc, StepStateView(step.data()),
                                  ones.cmatrix(rows, h), {}, {}, factor.matrix(rows, h));
      const auto look_up = [&](const Array<T>& to, const TokenTypes<T>& types) {
        embedding_dropout_forward<T>(Exec(), desc, StepStateView(step.data()),
                                     id.cvector(), words.cmatrix(vocabulary, h),
                                     positions.cvector(), places.cmatrix(length, h),
                                     to.matrix(rows, h), types);
      };
      look_up(two, {});
      look_up(y, {type.cvector(), table.cmatrix(2, h)});
      const auto at = positions.values(), w = words.values(), q = places.values(),
                 t = table.values(), f = factor.values(), of_two = two.values(),
                 got = y.values();
      std::vector<double> want(rows * h);
      for (index_t i = 0; i < rows * h; ++i) {
        const index_t r = i / h, c = i % h;
        const double kind = kinds[r];
        if (kind == 2) {
          EXPECT_EQ(got[i], of_two[i]);
        }
        want[i] = (r == 5 ? 0 : w[static_cast<index_t>(ids[r]) * h + c]) +
                  q[static_cast<index_t>(at[r]) * h + c] +
                  (kind == 2 ? 0 : t[static_cast<index_t>(kind) * h + c]);
        want[i] = f[i] == 0 ? 0 : want[i] / (p == 0 ? 1 : 45875.0 / 65536);
      }
      test::expect_close(got, want, 3 * test::rounding<T>(), 2, "y");
    }
  }
}

TYPED_TEST(EmbeddingOf, GradientOfFewRows) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t rows : {1, 31, 1025}) {
    for (const index_t h : {1, 33, 64, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h);
      std::vector<double> ids(rows), want(3 * h);
      for (index_t r = 0; r < rows; ++r)
        ids[r] = r % 5 == 4 ? 3 : r % 7 == 0 ? -1 : r % 2;
      const Array<std::int32_t> id(ids);
      const Array<T> d_y(test::uniform(rows * h, 1));
      const index_t blocks = partial_count(rows, h);
      const Array<A> partials(blocks * 3 * h, NAN), d_table(3 * h, NAN);
      const auto d = d_y.values();
      for (index_t i = 0; i < rows * h; ++i) {
        const auto entry = static_cast<index_t>(ids[i / h]);
        if (entry >= 0 && entry < 3) want[entry * h + i % h] += d[i];
      }
      embedding_backward_types<T>(Exec(), id.cvector(), d_y.cmatrix(rows, h),
                                  partials.matrix(blocks, 3 * h));
      add_partials<A>(Exec(), partials.cmatrix(blocks, 3 * h), Accumulate::no,
                      d_table.vector());
      test::expect_close(d_table.values(), want,
                         4 * std::sqrt(rows) * test::rounding<A>(), 8, "d_table");
    }
  }
}

TYPED_TEST(EmbeddingOf, BackwardMatchesReferenceOnShards) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t rows : {1, 31, 1025}) {
    for (const index_t h : {1, 31, 33, 64, 257}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h);
      const index_t vocabulary = 40, begin = 5, held = 20;
      const Array<std::int32_t> ids(random_ids(rows, vocabulary, 4));
      const Array<T> d_y(test::uniform(rows * h, 5));
      const auto before = test::uniform(held * h, 6);
      const Array<A> d_table(before), by_runs(before);
      const auto id = ids.values(), d = d_y.values();
      std::vector<double> want = d_table.values();
      for (index_t i = 0; i < rows * h; ++i) {
        const auto row = static_cast<index_t>(id[i / h]) - begin;
        if (row >= 0 && row < held) want[row * h + i % h] += d[i];
      }
      const Array<std::int32_t> scratch(embedding_scratch_elements<T>(rows, held)),
          places(2 * rows, -7);
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::yes, d_table.matrix(held, h));
      test::expect_close(d_table.values(), want,
                         4 * std::sqrt(rows) * test::rounding<A>(), 8, "d_table");
      embedding_backward_runs<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                 places.vector(), Accumulate::yes,
                                 by_runs.matrix(held, h));
      EXPECT_EQ(by_runs.bytes(), d_table.bytes());  // the same order of summation

      // Over what was there, whatever it was: the bits of sums that begin at zero.
      const Array<A> from_zero(held * h), over(held * h, NAN),
          over_by_runs(held * h, NAN);
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::yes, from_zero.matrix(held, h));
      embedding_backward<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                            scratch.vector(), Accumulate::no, over.matrix(held, h));
      embedding_backward_runs<T>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                 places.vector(), Accumulate::no,
                                 over_by_runs.matrix(held, h));
      EXPECT_EQ(over.bytes(), from_zero.bytes());
      EXPECT_EQ(over_by_runs.bytes(), from_zero.bytes());
    }
  }
}

// Gradients of 16 bits: the sums of float, what was there included, rounded once, by
// whichever way the rows of an id are found.
TEST(EmbeddingNarrow, BackwardRoundsOnce) {
  for (const index_t rows : {0, 1, 31, 1025}) {
    for (const index_t h : {1, 33, 257}) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const bool adds = accumulate == Accumulate::yes;
        SCOPED_TRACE(::testing::Message() << rows << " x " << h << ", adds " << adds);
        const index_t vocabulary = 40, begin = 5, held = 20;
        const Array<std::int32_t> ids(random_ids(rows, vocabulary, 4));
        const Array<bf16> d_y(test::uniform(rows * h, 5));
        const Array<bf16> before(test::uniform(held * h, 6));
        const Array<float> wide(before.values());
        const Array<std::int32_t> scratch(
            embedding_scratch_elements<bf16, bf16>(rows, held), -7.0),
            of_wide(embedding_scratch_elements<bf16>(rows, held), -7.0),
            places(2 * rows + held, -7.0);
        embedding_backward<bf16>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                 of_wide.vector(), accumulate, wide.matrix(held, h));
        const Array<bf16> want(wide.values());
        const auto start = adds ? before.values() : std::vector<double>(held * h, NAN);
        const Array<bf16> got(start), by_runs(start), in_order(start);
        embedding_backward<bf16, bf16>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin,
                                       scratch.vector(), accumulate, got.matrix(held, h));
        embedding_backward_runs<bf16, bf16>(Exec(), ids.cvector(), d_y.cmatrix(rows, h),
                                            begin, places.vector(), accumulate,
                                            by_runs.matrix(held, h));
        embedding_backward_in_order<bf16, bf16>(
            Exec(), ids.cvector(), d_y.cmatrix(rows, h), begin, places.vector(),
            accumulate, in_order.matrix(held, h));
        EXPECT_EQ(got.bytes(), want.bytes());
        EXPECT_EQ(by_runs.bytes(), want.bytes());
        EXPECT_EQ(in_order.bytes(), want.bytes());
      }
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
  embedding_backward_runs<double>(Exec(), ids.cvector(), d_y.cmatrix(rows, h), 0,
                                  scratch.vector(), Accumulate::no, d_table.matrix(5, h));
  std::vector<double> want(5 * h);
  for (index_t j = 0; j < h; ++j) want[3 * h + j] = rows;
  EXPECT_EQ(d_table.values(), want);
}

// A stage may have no tokens: the table is zeroed all the same.
TEST(EmbeddingOrder, NoRowsZeroTheTable) {
  const Array<std::int32_t> ids(0), scratch(0);
  const Array<float> d_y(0), d_table(12, 5.0), by_runs(12, 5.0);
  embedding_backward<float>(Exec(), ids.cvector(), d_y.cmatrix(0, 4), 0, scratch.vector(),
                            Accumulate::no, d_table.matrix(3, 4));
  embedding_backward_runs<float>(Exec(), ids.cvector(), d_y.cmatrix(0, 4), 0,
                                 scratch.vector(), Accumulate::no, by_runs.matrix(3, 4));
  EXPECT_EQ(d_table.values(), std::vector<double>(12));
  EXPECT_EQ(by_runs.values(), std::vector<double>(12));
}

}  // namespace
}  // namespace trireme::kernels

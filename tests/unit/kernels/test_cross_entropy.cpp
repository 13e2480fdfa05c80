// Cross-entropy against a plain log-softmax in double; a vocabulary in three shards
// equals the whole; padding takes no part.
#include "kernels/cross_entropy.hpp"

#include "base/error.hpp"
#include "kernels/impl/softmax_rows.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

// Of the third of a model's objectives, for which 4 positions count.
constexpr double kScale = 0.125;
constexpr ObjectiveScale kObjective{2, 4 * kScale};

struct LossStep {
  Kokkos::View<StepState, DeviceMemory> state{"state"};
  LossStep() {
    StepState values;
    values.objective_count[2] = 4.0;
    Kokkos::deep_copy(state, values);
  }
  StepStateView view() const { return StepStateView(state.data()); }
};

struct Reference {
  std::vector<double> loss, d_logits;
  double total = 0, count = 0;
};

Reference reference(index_t rows, index_t columns, index_t valid,
                    const std::vector<double>& logits, const std::vector<double>& labels,
                    const std::vector<double>& mask) {
  Reference r{std::vector<double>(rows), std::vector<double>(rows * columns)};
  for (index_t i = 0; i < rows; ++i) {
    const double* row = logits.data() + i * columns;
    double largest = row[0], sum = 0;
    for (index_t j = 0; j < valid; ++j) largest = std::max(largest, row[j]);
    for (index_t j = 0; j < valid; ++j) sum += std::exp(row[j] - largest);
    const auto label = static_cast<index_t>(labels[i]);
    r.loss[i] = largest + std::log(sum) - row[label];
    r.total += mask[i] * r.loss[i];
    r.count += mask[i];
    for (index_t j = 0; j < valid; ++j) {
      r.d_logits[i * columns + j] =
          kScale * mask[i] * (std::exp(row[j] - largest) / sum - (j == label ? 1 : 0));
    }
  }
  return r;
}

std::vector<double> some_labels(index_t rows, index_t vocabulary) {
  std::vector<double> labels = test::uniform(rows, 8, 0, static_cast<double>(vocabulary));
  for (double& l : labels) l = std::floor(l);
  return labels;
}
std::vector<double> some_mask(index_t rows) {
  std::vector<double> mask(rows);
  for (index_t i = 0; i < rows; ++i) mask[i] = i % 5 == 3 ? 0.0 : i % 7 == 2 ? 0.5 : 1.0;
  return mask;
}

template <class T>
class CrossEntropyOf : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyOf, test::RealTypes);

TYPED_TEST(CrossEntropyOf, MatchesReference) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const double u = test::rounding<T>();
  const Exec exec;
  const LossStep step;
  // Of a row of whole pieces, which 30008 columns are, a GPU's thread keeps six.
  for (const index_t rows : {1, 3, 31, 33}) {
    for (const index_t valid : {1, 31, 33, 257, 1024, 1025, 5003, 30007}) {
      for (const index_t padding : {0, 1, 7}) {
        if (valid > 6000 && rows > 3) continue;
        SCOPED_TRACE(::testing::Message() << rows << " x " << valid << " + " << padding);
        const index_t columns = valid + padding;
        // Sums of more numbers, by two threads of a host, are rounded more often.
        const double ua = (valid > 6000 ? 16 : 1) * test::rounding<A>();
        std::vector<double> values = test::uniform(rows * columns, 1, -10, 10);
        // What lies in the padding must not matter.
        for (index_t i = 0; i < rows; ++i) {
          for (index_t j = valid; j < columns; ++j) values[i * columns + j] = NAN;
        }
        const Array<T> logits(values);
        const Array<std::int32_t> labels(some_labels(rows, valid));
        const Array<float> mask(some_mask(rows));
        const Array<A> row_max(rows), sums(2 * rows), row_max2(rows), sums2(2 * rows),
            loss(rows);
        const Array<double> totals({10.0, 20.0});
        const VocabRange range{0, valid};
        const Reference want = reference(rows, columns, valid, logits.values(),
                                         labels.values(), mask.values());

        cross_entropy_row_max_and_sums<T>(exec, range, logits.cmatrix(rows, columns),
                                          labels.cvector(), row_max.vector(),
                                          sums.matrix(rows, 2));
        cross_entropy_row_max<T>(exec, range, logits.cmatrix(rows, columns),
                                 row_max2.vector());
        cross_entropy_row_sums<T>(exec, range, logits.cmatrix(rows, columns),
                                  labels.cvector(), row_max2.cvector(),
                                  sums2.matrix(rows, 2));
        EXPECT_EQ(row_max.bytes(), row_max2.bytes());
        // Where a row is a team's of two threads, each adds half of it.
        test::expect_close(sums.values(), sums2.values(), 32 * ua, 0, "one pass or two");

        cross_entropy_loss<T>(exec, row_max.cvector(), sums.cmatrix(rows, 2),
                              mask.cvector(), loss.vector(), totals.vector());
        test::expect_close(loss.values(), want.loss, 8 * ua, 4, "loss");
        EXPECT_NEAR(totals.values()[0], 10 + want.total, 8 * ua * rows * 20);
        EXPECT_DOUBLE_EQ(totals.values()[1], 20 + want.count);

        const Array<T> in_place(logits.values());
        cross_entropy_in_place<T>(exec, range, step.view(), kObjective, labels.cvector(),
                                  mask.cvector(), in_place.matrix(rows, columns),
                                  row_max2.vector(), sums2.matrix(rows, 2));
        EXPECT_EQ(row_max2.bytes(), row_max.bytes());
        EXPECT_EQ(sums2.bytes(), sums.bytes());

        cross_entropy_backward<T>(exec, range, step.view(), kObjective, labels.cvector(),
                                  mask.cvector(), row_max.cvector(),
                                  sums.cmatrix(rows, 2), logits.matrix(rows, columns));
        EXPECT_EQ(in_place.bytes(), logits.bytes()) << "in one pass or two";
        // fp16 has no smaller number than 2^-24: absolute there.
        test::expect_close(logits.values(), want.d_logits, u + 64 * ua,
                           std::is_same_v<T, fp16> ? 1e-3 : 1e-6, "d_logits");
      }
    }
  }
}

// A host's long vectors, where it has them, and the plain loops: the same bits, however
// the row ends, also where exponentials are zero, subnormal results and infinities are.
template <class T>
void expect_both_ways_alike() {
  using A = Accumulator<T>;
  const index_t rows = 5;
  const LossStep step;
  for (const index_t columns : {1, 15, 16, 17, 31, 33, 255, 256, 257, 1000, 5003}) {
    for (const double size : {0.5, 10.0, 120.0}) {
      SCOPED_TRACE(::testing::Message() << columns << " columns up to " << size);
      std::vector<double> values = test::uniform(rows * columns, 3, -size, size);
      if (columns > 1) values.back() = -INFINITY;
      const Array<std::int32_t> labels(some_labels(rows, columns));
      const Array<float> mask(some_mask(rows));
      std::vector<unsigned char> bits[2];
      for (const auto way :
           {impl::LongVectors::off, impl::LongVectors::where_there_are}) {
        impl::set_softmax_rows(way);
        const Array<T> logits(values);
        const Array<A> row_max(rows), sums(2 * rows);
        cross_entropy_in_place<T>(Exec(), {0, columns}, step.view(), kObjective,
                                  labels.cvector(), mask.cvector(),
                                  logits.matrix(rows, columns), row_max.vector(),
                                  sums.matrix(rows, 2));
        for (const auto& more : {logits.bytes(), row_max.bytes(), sums.bytes()}) {
          auto& all = bits[way == impl::LongVectors::off];
          all.insert(all.end(), more.begin(), more.end());
        }
      }
      EXPECT_EQ(bits[0], bits[1]);
    }
  }
}

TEST(CrossEntropyVectors, HaveTheBitsOfThePlainLoops) {
#if !defined(__FMA__) && defined(__x86_64__)
  GTEST_SKIP() << "the plain loops of this build round products, too";
#endif
  expect_both_ways_alike<bf16>();
  expect_both_ways_alike<fp16>();
}

TEST(CrossEntropyVectors, KeepNaN) {
  for (const index_t at : {0, 40, 299}) {
    std::vector<double> values(300, 1.0);
    values[static_cast<std::size_t>(at)] = NAN;
    const Array<bf16> logits(values);
    const Array<float> row_max(1), sums(2), mask(1, 1.0);
    const Array<std::int32_t> labels({7});
    cross_entropy_in_place<bf16>(Exec(), {0, 300}, LossStep().view(), kObjective,
                                 labels.cvector(), mask.cvector(), logits.matrix(1, 300),
                                 row_max.vector(), sums.matrix(1, 2));
    EXPECT_EQ(row_max.values()[0], 1.0);
    EXPECT_TRUE(std::isnan(sums.values()[0]));
    for (const double gradient : logits.values()) ASSERT_TRUE(std::isnan(gradient));
  }
}

// More of them than are gone through at a time, before anything else.
TYPED_TEST(CrossEntropyOf, ColumnsOfMinusInfinityCountForNothing) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const index_t columns = 700, hidden = 513;
  std::vector<double> values(columns, 2.0);
  std::fill_n(values.begin(), hidden, -INFINITY);
  const Array<T> logits(values);
  const Array<A> row_max(1), sums(2);
  const Array<std::int32_t> labels({600});
  const Array<float> mask(1, 1.0);
  cross_entropy_in_place<T>(Exec(), {0, columns}, LossStep().view(), kObjective,
                            labels.cvector(), mask.cvector(), logits.matrix(1, columns),
                            row_max.vector(), sums.matrix(1, 2));
  EXPECT_EQ(row_max.values()[0], 2.0);
  EXPECT_NEAR(sums.values()[0], columns - hidden, 1e-4);
  const std::vector<double> gradients = logits.values();
  for (index_t j = 0; j < columns; ++j) {
    ASSERT_EQ(gradients[j] == 0.0, j < hidden) << j;
    ASSERT_TRUE(std::isfinite(gradients[j])) << j;
  }
}

// Each rank of a tensor group holds a range; combined as the all-reduces would.
TYPED_TEST(CrossEntropyOf, ThreeShardsEqualTheWhole) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const index_t rows = 33, vocabulary = 100, held = 40;  // 40 + 40 + 20 and padding
  const LossStep step;
  const auto values = test::uniform(rows * vocabulary, 2, -20, 20);
  const Array<T> whole(values);
  const Array<std::int32_t> labels(some_labels(rows, vocabulary));
  const Array<float> mask(some_mask(rows));
  const Reference want = reference(rows, vocabulary, vocabulary, whole.values(),
                                   labels.values(), mask.values());
  std::vector<Array<T>> shard;
  std::vector<VocabRange> range;
  std::vector<double> max_all(rows, -INFINITY), sums_all(2 * rows);
  for (index_t part = 0; part < 3; ++part) {
    const index_t begin = part * held, valid = std::min(held, vocabulary - begin);
    std::vector<double> mine(rows * held, 50.0);  // padding larger than any logit
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < valid; ++j) {
        mine[i * held + j] = values[i * vocabulary + begin + j];
      }
    }
    shard.emplace_back(mine);
    range.push_back({begin, valid});
    const Array<A> row_max(rows);
    cross_entropy_row_max<T>(Exec(), range[part], shard[part].cmatrix(rows, held),
                             row_max.vector());
    for (index_t i = 0; i < rows; ++i) {
      max_all[i] = std::max(max_all[i], row_max.values()[i]);
    }
  }
  const Array<A> row_max(max_all);
  int labels_found = 0;
  for (index_t part = 0; part < 3; ++part) {
    const Array<A> sums(2 * rows);
    cross_entropy_row_sums<T>(Exec(), range[part], shard[part].cmatrix(rows, held),
                              labels.cvector(), row_max.cvector(), sums.matrix(rows, 2));
    const auto s = sums.values();
    for (index_t i = 0; i < 2 * rows; ++i) sums_all[i] += s[i];
    for (index_t i = 0; i < rows; ++i) labels_found += s[2 * i + 1] != 0;
  }
  EXPECT_EQ(labels_found, rows);
  const Array<A> sums(sums_all), loss(rows);
  const Array<double> totals(2);
  cross_entropy_loss<T>(Exec(), row_max.cvector(), sums.cmatrix(rows, 2), mask.cvector(),
                        loss.vector(), totals.vector());
  test::expect_close(loss.values(), want.loss, 8 * test::rounding<A>(), 8, "loss");
  std::vector<double> d_whole(rows * vocabulary);
  for (index_t part = 0; part < 3; ++part) {
    cross_entropy_backward<T>(Exec(), range[part], step.view(), kObjective,
                              labels.cvector(), mask.cvector(), row_max.cvector(),
                              sums.cmatrix(rows, 2), shard[part].matrix(rows, held));
    const auto d = shard[part].values();
    for (index_t i = 0; i < rows; ++i) {
      for (index_t j = 0; j < held; ++j) {
        if (j < range[part].valid_columns) {
          d_whole[i * vocabulary + range[part].begin + j] = d[i * held + j];
        } else {
          ASSERT_EQ(d[i * held + j], 0.0);
        }
      }
    }
  }
  test::expect_close(d_whole, want.d_logits,
                     test::rounding<T>() + 32 * test::rounding<A>(),
                     std::is_same_v<T, fp16> ? 1e-3 : 1e-6, "d_logits");
}

// A rank that holds only padding adds nothing and breaks nothing.
TEST(CrossEntropyShard, OfPaddingOnly) {
  const Array<float> logits(2 * 3, 5.0), row_max(2, 1.0), global_max(2, 1.0),
      sums(4, 9.0);
  const Array<std::int32_t> labels({0, 1});
  cross_entropy_row_max<float>(Exec(), {10, 0}, logits.cmatrix(2, 3), row_max.vector());
  EXPECT_EQ(row_max.values()[0], -INFINITY);
  cross_entropy_row_sums<float>(Exec(), {10, 0}, logits.cmatrix(2, 3), labels.cvector(),
                                global_max.cvector(), sums.matrix(2, 2));
  EXPECT_EQ(sums.values(), std::vector<double>(4, 0.0));
}

// A GPU's thread counts columns in 32 bits.
TEST(CrossEntropyShard, RefusesRowsOfTooManyColumns) {
  constexpr index_t kMost = index_t{1} << 30;
  const Array<float> row_max(0);
  const auto with_columns = [&](index_t columns) {
    cross_entropy_row_max<float>(
        Exec(), {0, columns}, View2<const float>(nullptr, 0, columns), row_max.vector());
  };
  EXPECT_NO_THROW(with_columns(kMost));
  EXPECT_THROW(with_columns(kMost + 1), Error);
}

// Logits whose exponentials overflow float, and a NaN, which must reach the loss.
TEST(CrossEntropyExtremes, LargeLogitsAndNaN) {
  const index_t columns = 3000;
  std::vector<double> values(2 * columns, -1e4);
  values[5] = 1e4;
  values[2900] = 9990;
  values[columns + 1] = NAN;
  const Array<float> logits(values), row_max(2), sums(4), loss(2), mask(2, 1.0);
  const Array<std::int32_t> labels({2900, 0});
  const Array<double> totals(2);
  const LossStep step;
  cross_entropy_row_max_and_sums<float>(Exec(), {0, columns}, logits.cmatrix(2, columns),
                                        labels.cvector(), row_max.vector(),
                                        sums.matrix(2, 2));
  cross_entropy_loss<float>(Exec(), row_max.cvector(), sums.cmatrix(2, 2), mask.cvector(),
                            loss.vector(), totals.vector());
  EXPECT_NEAR(loss.values()[0], 10 + std::log1p(std::exp(-10.0)), 1e-3);
  EXPECT_TRUE(std::isnan(loss.values()[1]));
  EXPECT_TRUE(std::isnan(totals.values()[0]));
  cross_entropy_in_place<float>(
      Exec(), {0, columns}, step.view(), kObjective, labels.cvector(), mask.cvector(),
      logits.matrix(2, columns), row_max.vector(), sums.matrix(2, 2));
  const std::vector<double> gradient = logits.values();
  EXPECT_NEAR(gradient[5], kScale / (1 + std::exp(-10.0)), 1e-6);
  EXPECT_NEAR(gradient[2900], kScale * (1 / (1 + std::exp(10.0)) - 1), 1e-6);
  EXPECT_EQ(gradient[0], 0.0);
  EXPECT_TRUE(std::isnan(gradient[static_cast<std::size_t>(columns)]));
}

// The loss of a row has the rounding of its own size, not of its logits'. Exact values:
// log(1 + e^-5), log(1000), log(1 + e^-12).
TEST(CrossEntropyExtremes, LossIsNotRoundedToTheLogits) {
  const index_t columns = 1000;
  std::vector<double> values(3 * columns, -1e4);
  values[7] = 1e4;
  values[999] = 9995;
  std::fill_n(values.begin() + columns, columns, 1e4);
  values[2 * columns + 3] = 30;
  values[2 * columns + 4] = 18;
  const Array<float> logits(values), row_max(3), sums(6), loss(3), mask(3, 1.0);
  const Array<std::int32_t> labels({7, 500, 3});
  const Array<double> totals(2);
  cross_entropy_row_max_and_sums<float>(Exec(), {0, columns}, logits.cmatrix(3, columns),
                                        labels.cvector(), row_max.vector(),
                                        sums.matrix(3, 2));
  cross_entropy_loss<float>(Exec(), row_max.cvector(), sums.cmatrix(3, 2), mask.cvector(),
                            loss.vector(), totals.vector());
  // Of S = 1 + x, half an ulp of 1 is left.
  EXPECT_NEAR(loss.values()[0], 6.7153485e-3, 1.2e-7);
  EXPECT_NEAR(loss.values()[1], std::log(1000.0), 1e-6);
  EXPECT_NEAR(loss.values()[2], 6.1441935e-6, 1.2e-7);
}

// A row that does not count changes nothing, whatever it holds.
TEST(CrossEntropyExtremes, MaskedRowsMayHoldAnything) {
  const LossStep step;
  const Array<float> logits({1.0, 2.0, NAN, INFINITY}), in_place(logits.values()),
      row_max(2), sums(4), loss(2), mask({1.0, 0.0});
  const Array<std::int32_t> labels({0, -1});
  const Array<double> totals(2);
  cross_entropy_row_max_and_sums<float>(Exec(), {0, 2}, logits.cmatrix(2, 2),
                                        labels.cvector(), row_max.vector(),
                                        sums.matrix(2, 2));
  cross_entropy_loss<float>(Exec(), row_max.cvector(), sums.cmatrix(2, 2), mask.cvector(),
                            loss.vector(), totals.vector());
  EXPECT_NEAR(totals.values()[0], 1 + std::log1p(std::exp(-1.0)), 1e-6);
  cross_entropy_backward<float>(Exec(), {0, 2}, step.view(), kObjective, labels.cvector(),
                                mask.cvector(), row_max.cvector(), sums.cmatrix(2, 2),
                                logits.matrix(2, 2));
  EXPECT_EQ(logits.values()[2], 0.0);
  EXPECT_EQ(logits.values()[3], 0.0);
  cross_entropy_in_place<float>(Exec(), {0, 2}, step.view(), kObjective, labels.cvector(),
                                mask.cvector(), in_place.matrix(2, 2), row_max.vector(),
                                sums.matrix(2, 2));
  EXPECT_EQ(in_place.bytes(), logits.bytes());
}

TEST(CrossEntropyOrder, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const index_t rows = 301, columns = 2000;
  const Array<float> logits(test::uniform(rows * columns, 1)), mask(some_mask(rows));
  const Array<std::int32_t> labels(some_labels(rows, columns));
  const LossStep step;
  std::vector<unsigned char> bits[2];
  for (const bool alone : {false, true}) {
    const Exec exec = alone ? one.exec : Exec();
    const Array<float> row_max(rows), sums(2 * rows), loss(rows);
    const Array<double> totals(2);
    cross_entropy_row_max_and_sums<float>(exec, {0, columns},
                                          logits.cmatrix(rows, columns), labels.cvector(),
                                          row_max.vector(), sums.matrix(rows, 2));
    cross_entropy_loss<float>(exec, row_max.cvector(), sums.cmatrix(rows, 2),
                              mask.cvector(), loss.vector(), totals.vector());
    const Array<float> in_place(logits.values());
    cross_entropy_in_place<float>(
        exec, {0, columns}, step.view(), kObjective, labels.cvector(), mask.cvector(),
        in_place.matrix(rows, columns), row_max.vector(), sums.matrix(rows, 2));
    exec.fence("test");
    bits[alone] = sums.bytes();
    for (const auto& more : {totals.bytes(), in_place.bytes()}) {
      bits[alone].insert(bits[alone].end(), more.begin(), more.end());
    }
  }
  EXPECT_EQ(bits[0], bits[1]);
}

}  // namespace
}  // namespace trireme::kernels

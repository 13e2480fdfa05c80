// Initial weights: known answers computed elsewhere (Philox in Python, Box-Muller in 40
// digits), moments and distribution, shards equal to the whole. Fill and convert.
#include "kernels/initialize.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

random::Generator generator() {
  return {.seed = 1234,
          .owner = random::owner_of("layers/0/mlp/fc1/weight"),
          .stream = random::Stream::initialisation};
}

MatrixWindow whole(index_t rows, index_t columns) {
  return {0, 0, columns, 0, 0, columns, rows, columns};
}

struct Known {
  index_t row, column;
  double value;
};
constexpr Known kKnown[] = {
    {0, 0, 0.00666944698580254097}, {0, 1, 0.165871876045745543},
    {0, 2, 0.511864446187079872},   {0, 3, 0.16854505703202144},
    {0, 9, 1.15135952825565819},    {1, 0, -0.0284762492139365057},
    {2, 7, 0.0644394786930167624},  {5, 4, 1.7507580125993234},
};

TEST(InitializeNormal, KnownAnswers) {
  const index_t rows = 6, columns = 10;
  const Array<double> exact(rows * columns);
  fill_normal<double>(Exec(), generator(), 1.0, whole(rows, columns), exact.vector());
  const Array<float> rounded(rows * columns);
  fill_normal<float>(Exec(), generator(), 0.02, whole(rows, columns), rounded.vector());
  for (const Known& known : kKnown) {
    const index_t i = known.row * columns + known.column;
    EXPECT_NEAR(exact.values()[i], known.value, 4e-15 * std::abs(known.value));
    // The double product rounded to float: the same bits on every machine.
    EXPECT_EQ(rounded.values()[i], static_cast<float>(0.02 * exact.values()[i]));
  }
}

// Every bit of a larger draw: what a checkpoint of step 0 holds on every machine.
TEST(InitializeNormal, BitsAreFixed) {
  const index_t rows = 257, columns = 333;
  const Array<double> values(rows * columns);
  fill_normal<double>(Exec(), generator(), 0.02, whole(rows, columns), values.vector());
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char byte : values.bytes()) hash = (hash ^ byte) * 0x100000001b3ull;
  EXPECT_EQ(hash, 0xe820512fc1e5107eull);
}

TEST(InitializeNormal, MomentsAndDistribution) {
  const index_t n = 1 << 20;
  const double std = 0.5;
  const Array<double> values(n);
  fill_normal<double>(Exec(), generator(), std, whole(n / 1024, 1024), values.vector());
  std::vector<double> z = values.values();
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbours = 0;
  for (index_t i = 0; i < n; ++i) {
    z[i] /= std;
    m1 += z[i];
    m2 += z[i] * z[i];
    m3 += z[i] * z[i] * z[i];
    m4 += z[i] * z[i] * z[i] * z[i];
    if (i > 0) neighbours += z[i] * z[i - 1];
  }
  const double root = std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(m1 / n, 0, 5 / root);  // five standard deviations of each moment
  EXPECT_NEAR(m2 / n, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(m3 / n, 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(m4 / n, 3, 5 * std::sqrt(96.0) / root);
  EXPECT_NEAR(neighbours / n, 0, 5 / root);
  // Kolmogorov-Smirnov: P(sqrt(n) D > 1.95) = 0.001.
  std::sort(z.begin(), z.end());
  double distance = 0;
  for (index_t i = 0; i < n; ++i) {
    const double cdf = 0.5 * std::erfc(-z[i] / std::sqrt(2.0));
    distance = std::max({distance, std::abs(cdf - static_cast<double>(i) / n),
                         std::abs(cdf - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(root * distance, 1.95);
  EXPECT_GT(z.back(), 4.5);  // the tails are there
  EXPECT_LT(z.front(), -4.5);
}

template <class T>
class InitializeOf : public ::testing::Test {};
TYPED_TEST_SUITE(InitializeOf, test::RealTypes);

TYPED_TEST(InitializeOf, ShardsDrawWhatTheWholeDraws) {
  using T = TypeParam;
  for (const index_t rows : {1, 31, 33}) {
    for (const index_t columns : {1, 2, 31, 33, 257, 600}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
      const Array<T> all(rows * columns);
      fill_normal<T>(Exec(), generator(), 0.02, whole(rows, columns), all.vector());
      const auto want = all.values();
      // Windows that begin and end anywhere, put into a larger local matrix.
      for (const index_t row : {index_t{0}, rows / 2}) {
        for (const index_t column : {index_t{0}, columns / 3, columns / 2, columns - 1}) {
          const index_t height = rows - row, width = (columns - column + 1) / 2;
          const index_t local_columns = width + 5;
          const Array<T> local((height + 2) * local_columns, 7.0);
          fill_normal<T>(Exec(), generator(), 0.02,
                         {row, column, columns, 1, 3, local_columns, height, width},
                         local.vector());
          const auto got = local.values();
          for (index_t i = 0; i < height + 2; ++i) {
            for (index_t j = 0; j < local_columns; ++j) {
              const bool inside = i >= 1 && i <= height && j >= 3 && j < 3 + width;
              ASSERT_EQ(got[i * local_columns + j],
                        inside ? want[(row + i - 1) * columns + column + j - 3] : 7.0);
            }
          }
        }
      }
    }
  }
}

// A share of a rank's rows may begin and end inside a row.
TYPED_TEST(InitializeOf, SharesDrawWhatTheWholeDraws) {
  using T = TypeParam;
  constexpr index_t kRows = 5, kColumns = 33, kLocal = 12;  // columns 9 to 16 are here
  const MatrixWindow window{0, 9, kColumns, 0, 2, kLocal, kRows, 8};
  const Array<T> all(kRows * kLocal, 7.0);
  fill_normal<T>(Exec(), generator(), 0.02, window, all.vector());
  const auto want = all.values();
  for (index_t begin = 0; begin < kRows * kLocal; begin += 7) {
    for (index_t end = begin + 1; end <= kRows * kLocal; end += 5) {
      MatrixWindow part = window;
      part.begin = begin;
      part.end = end;
      const Array<T> share(end - begin, 7.0);
      fill_normal<T>(Exec(), generator(), 0.02, part, share.vector());
      ASSERT_EQ(share.values(),
                std::vector<double>(want.begin() + begin, want.begin() + end));
    }
  }
}

TYPED_TEST(InitializeOf, RunsAreZeroedAndNothingElse) {
  using T = TypeParam;
  const Array<T> values(40000, 3.0);
  Runs runs;
  runs.add({0, 1});
  runs.add({31, 33});
  runs.add({70, 0});
  runs.add({257, 20000});
  runs.add({39999, 1});
  EXPECT_FALSE(runs.is_full());
  zero_runs<T>(Exec(), runs, values.vector());
  std::vector<double> want(40000, 3.0);
  for (int i = 0; i < runs.size; ++i) {
    std::fill_n(want.begin() + runs.runs[i].begin, runs.runs[i].count, 0.0);
  }
  EXPECT_EQ(values.values(), want);
  zero_runs<T>(Exec(), Runs(), values.vector());
  EXPECT_EQ(values.values(), want);
  Runs beyond;
  beyond.add({39999, 2});
  EXPECT_THROW(zero_runs<T>(Exec(), beyond, values.vector()), Error);
}

TYPED_TEST(InitializeOf, FillAndConvert) {
  using T = TypeParam;
  for (const index_t n : {0, 1, 31, 16384, 40001}) {
    const Array<T> filled(n);
    fill<T>(Exec(), filled.vector(), test::from_double<T>(1.5));
    EXPECT_EQ(filled.values(), std::vector<double>(n, 1.5));
    const Array<double> wide(test::uniform(n, 1));
    const Array<T> narrow(n);
    convert<double, T>(Exec(), wide.cvector(), narrow.vector());
    EXPECT_EQ(narrow.bytes(), Array<T>(wide.values()).bytes());
    const Array<float> back(n);
    convert<T, float>(Exec(), narrow.cvector(), back.vector());
    const Array<float> expected(narrow.values());
    EXPECT_EQ(back.bytes(), expected.bytes());
  }
}

TEST(InitializeErrors, WindowsThatDoNotFit) {
  const Array<float> local(20);
  const MatrixWindow too_wide{0, 5, 8, 0, 0, 10, 2, 4};
  const MatrixWindow too_tall{0, 0, 8, 1, 0, 10, 2, 4};
  MatrixWindow too_long{0, 0, 8, 0, 0, 10, 4, 4};
  too_long.begin = 5;
  too_long.end = 26;
  for (const MatrixWindow& window : {too_wide, too_tall, too_long}) {
    EXPECT_THROW(fill_normal<float>(Exec(), generator(), 1.0, window, local.vector()),
                 std::exception);
  }
}

}  // namespace
}  // namespace trireme::kernels

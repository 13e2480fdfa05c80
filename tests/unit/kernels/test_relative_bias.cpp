// Buckets of relative positions against PyTorch's, and the bias and its gradient against
// plain loops.
#include "kernels/relative_bias.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

// Its positions are key - query.
TEST(RelativeBiasBuckets, AreThoseOfPyTorch) {
  std::ifstream fixture(std::string(std::getenv("TRIREME_SOURCE_DIR")) +
                        "/tests/parity/fixtures/t5_buckets.txt");
  std::string directions;
  index_t count, max_distance, runs, tables = 0;
  while (fixture >> directions >> count >> max_distance >> runs) {
    SCOPED_TRACE(::testing::Message()
                 << directions << " " << count << " " << max_distance);
    const RelativeBuckets buckets(
        count, max_distance,
        directions == "both" ? RelativeDirections::both : RelativeDirections::past);
    EXPECT_EQ(buckets.buckets(), count);
    index_t first, last, bucket, next = -2048;
    for (; runs > 0 && fixture >> first >> last >> bucket; --runs) {
      ASSERT_EQ(first, next);
      next = last + 1;
      for (index_t position = first; position <= last; ++position) {
        ASSERT_EQ(buckets.bucket(-position), bucket) << position;
      }
    }
    EXPECT_EQ(runs, 0);
    EXPECT_EQ(next, 2049);
    ++tables;
  }
  EXPECT_EQ(tables, 8);
}

// The last bucket has all that is farther, and equal powers are no matter of rounding.
TEST(RelativeBiasBuckets, FarDistancesAndPowers) {
  const RelativeBuckets both(32, 128, RelativeDirections::both);
  EXPECT_EQ(both.bucket(0), 0);
  EXPECT_EQ(both.bucket(-1), 17);
  EXPECT_EQ(both.bucket(15), 9);
  EXPECT_EQ(both.bucket(16), 10);  // 8 sqrt(2)^2
  EXPECT_EQ(both.bucket(-64), 30);
  EXPECT_EQ(both.bucket(index_t{1} << 35), 15);
  const RelativeBuckets past(32, 128, RelativeDirections::past);
  EXPECT_EQ(past.bucket(-5), 0);
  EXPECT_EQ(past.bucket(1000000), 31);
  // 2^b: every threshold is a power that a logarithm may miss.
  const RelativeBuckets powers(20, index_t{1} << 19, RelativeDirections::past);
  index_t nearest = 10;
  for (index_t b = 11; b < 20; ++b) {
    while (powers.bucket(nearest) < b) ++nearest;
    EXPECT_GE(std::pow(nearest / 10.0, 10), std::pow((1 << 19) / 10.0, b - 10) * 0.999);
    EXPECT_LT(std::pow((nearest - 1) / 10.0, 10), std::pow((1 << 19) / 10.0, b - 10));
  }
}

// However few distances the buckets share, some of which are empty then.
TEST(RelativeBiasBuckets, DistancesOfABucketAreThoseThatHaveIt) {
  for (const auto& [count, max_distance] :
       {std::pair{32, 128}, {8, 20}, {4, 5}, {32, 17}, {64, 40}}) {
    for (const auto directions : {RelativeDirections::both, RelativeDirections::past}) {
      const RelativeBuckets buckets(count, max_distance, directions);
      const DistanceRange all{-300, 200};
      index_t found = 0;
      for (index_t bucket = 0; bucket < count; ++bucket) {
        const DistanceRange range = buckets.distances(bucket, all);
        ASSERT_LE(range.begin, range.end);
        for (index_t d = all.begin; d < all.end; ++d) {
          const bool is_in = range.begin <= d && d < range.end;
          ASSERT_EQ(buckets.bucket(d) == bucket, is_in) << bucket << " " << d;
          found += is_in ? 1 : 0;
        }
      }
      EXPECT_EQ(found, 500);
    }
  }
}

TEST(RelativeBiasBuckets, WhatCannotBeIsNamed) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  const auto make = [](index_t buckets, index_t farthest, RelativeDirections directions) {
    return [=] { RelativeBuckets(buckets, farthest, directions); };
  };
  const auto both = RelativeDirections::both, past = RelativeDirections::past;
  EXPECT_THAT(make(31, 128, both),
              ThrowsMessage<Error>(HasSubstr("31 buckets are not 2 to 64")));
  EXPECT_THAT(make(2, 128, both), ThrowsMessage<Error>(HasSubstr("2 directions")));
  EXPECT_THAT(make(65, 1000, past), ThrowsMessage<Error>(HasSubstr("1 direction")));
  EXPECT_THAT(make(32, 8, both),
              ThrowsMessage<Error>(HasSubstr("a maximum distance of 8 is not above")));
  EXPECT_NO_THROW(make(32, 9, both)());
  EXPECT_NO_THROW(make(128, 9000, both)());
}

template <class T>
class RelativeBiasOf : public ::testing::Test {};
TYPED_TEST_SUITE(RelativeBiasOf, test::RealTypes);

TYPED_TEST(RelativeBiasOf, SpreadsTheTableAndGathersItsGradient) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const auto directions : {RelativeDirections::both, RelativeDirections::past}) {
    for (const auto& [heads, first, count] :
         {std::tuple{1, 0, 1}, {3, -30, 61}, {12, -256, 511}, {2, 5, 300}}) {
      SCOPED_TRACE(::testing::Message() << heads << " heads from " << first);
      const RelativeBuckets buckets(32, 128, directions);
      const Array<T> table(test::uniform(32 * heads, 1));
      const Array<A> bias(heads * count, NAN);
      relative_bias_forward<T>(Exec(), buckets, table.cmatrix(32, heads), first,
                               bias.matrix(heads, count));
      const Array<A> d_bias(test::uniform(heads * count, 2));
      const auto before = test::uniform(32 * heads, 3);
      const Array<A> added(before), over(32 * heads, NAN);
      relative_bias_backward<A>(Exec(), buckets, d_bias.cmatrix(heads, count), first,
                                Accumulate::yes, added.matrix(32, heads));
      relative_bias_backward<A>(Exec(), buckets, d_bias.cmatrix(heads, count), first,
                                Accumulate::no, over.matrix(32, heads));

      const auto rows = table.values(), got = bias.values(), d = d_bias.values();
      std::vector<double> want(32 * heads);
      for (index_t i = 0; i < heads * count; ++i) {
        const index_t at = buckets.bucket(first + i % count) * heads + i / count;
        ASSERT_EQ(got[i], rows[at]) << i;
        want[at] += d[i];
      }
      test::expect_close(over.values(), want, 64 * test::rounding<A>(), 4, "d_table");
      for (index_t i = 0; i < 32 * heads; ++i) want[i] += before[i];
      test::expect_close(added.values(), want, 64 * test::rounding<A>(), 4, "added");
    }
  }
}

TEST(RelativeBias, SumsOfSixteenBitsAreRoundedOnce) {
  const RelativeBuckets buckets(32, 128, RelativeDirections::past);
  const Array<float> d_bias(200, 0x1p-9 + 0x1p-20);
  const Array<bf16> d_table(32, 1.0);
  relative_bias_backward<float, bf16>(Exec(), buckets, d_bias.cmatrix(1, 200), -100,
                                      Accumulate::yes, d_table.matrix(32, 1));
  // All that is not in the past has bucket 0: 101 distances.
  const bf16 want(1.0f + 101 * (0x1p-9f + 0x1p-20f));
  EXPECT_EQ(d_table.values()[0], test::to_double(want));
}

TEST(RelativeBias, WrongExtentsAreNamed) {
  const RelativeBuckets buckets(32, 128, RelativeDirections::both);
  const Array<float> table(31 * 2), bias(2 * 9);
  EXPECT_THAT(
      [&] {
        relative_bias_forward<float>(Exec(), buckets, table.cmatrix(31, 2), -4,
                                     bias.matrix(2, 9));
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("table is (31, 2), expected (32, 2)")));
  EXPECT_THAT(
      [&] {
        relative_bias_backward<float>(Exec(), buckets, bias.cmatrix(2, 9), -4,
                                      Accumulate::no, table.matrix(31, 2));
      },
      ::testing::ThrowsMessage<Error>(
          ::testing::HasSubstr("d_table is (31, 2), expected (32, 2)")));
}

}  // namespace
}  // namespace trireme::kernels

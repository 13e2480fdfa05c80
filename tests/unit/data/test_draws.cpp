// Numbers of a sample: uniform, the same in any order, and other ones for every seed,
// corpus, epoch, window and purpose.
#include "data/draws.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace trireme::data {
namespace {

using Purpose = Draws::Purpose;

std::vector<std::uint32_t> words(std::uint64_t seed, const SampleId& sample,
                                 Purpose purpose, int count = 6) {
  Draws draws(seed, sample, purpose);
  std::vector<std::uint32_t> words;
  for (int i = 0; i < count; ++i) words.push_back(draws.word());
  return words;
}

// How many standard deviations chi squared is from its mean.
double deviations(const std::vector<double>& observed, double expected) {
  double sum = 0.0;
  for (const double count : observed) {
    sum += (count - expected) * (count - expected) / expected;
  }
  const auto freedom = static_cast<double>(observed.size() - 1);
  return std::abs(sum - freedom) / std::sqrt(2.0 * freedom);
}

TEST(Draws, AreThoseOfTheirCoordinates) {
  const SampleId sample{3, 7, 1234567};
  EXPECT_EQ(words(5, sample, Purpose::kept_spans), words(5, sample, Purpose::kept_spans));
  std::set<std::vector<std::uint32_t>> different;
  for (const std::uint64_t seed : {std::uint64_t{5}, std::uint64_t{1} << 40}) {
    for (const int corpus : {0, 1, 65535}) {
      for (const index_t epoch : {0, 1, 65535}) {
        for (const index_t window : {index_t{0}, index_t{1}, index_t{1} << 40}) {
          for (const Purpose purpose :
               {Purpose::document, Purpose::hidden_spans, Purpose::kept_spans}) {
            different.insert(words(seed, {corpus, epoch, window}, purpose));
          }
        }
      }
    }
  }
  EXPECT_EQ(different.size(), 2u * 3 * 3 * 3 * 3);
}

// Neither neighbouring draws of a sample nor first draws of neighbouring samples favour a
// number.
TEST(Draws, BelowIsUniform) {
  for (const index_t n : {2, 3, 7, 100, 1000}) {
    const double expected = 400;
    std::vector<double> of_one(static_cast<std::size_t>(n)), of_many = of_one;
    Draws draws(1, {0, 0, 0}, Purpose::document);
    for (index_t i = 0; i < n * 400; ++i) {
      ++of_one[static_cast<std::size_t>(draws.below(n))];
      ++of_many[static_cast<std::size_t>(
          Draws(1, {0, i % 3, i / 3}, Purpose::document).below(n))];
    }
    EXPECT_LT(deviations(of_one, expected), 4.0) << n;
    EXPECT_LT(deviations(of_many, expected), 4.0) << n;
  }
}

// Of 2^32 words each third number would get two, and the others one.
TEST(Draws, BelowManyIsUniform) {
  const index_t n = index_t{3} << 30;
  std::vector<double> classes(3);
  Draws draws(2, {0, 0, 0}, Purpose::document);
  for (int i = 0; i < 30000; ++i) {
    const index_t drawn = draws.below(n);
    ASSERT_LT(drawn, n);
    ++classes[static_cast<std::size_t>(drawn % 3)];
  }
  EXPECT_LT(deviations(classes, 10000), 4.0);
  EXPECT_EQ(draws.below(1), 0);
  EXPECT_GE(draws.below(index_t{1} << 32), 0);
  EXPECT_THROW(draws.below(0), Error);
}

// Of two words each.
TEST(Draws, BelowMoreThanAWordIsUniform) {
  for (const index_t n : {(index_t{1} << 32) + 1, 3 * (index_t{1} << 60)}) {
    std::vector<double> classes(50);
    Draws draws(4, {0, 0, 0}, Purpose::text);
    for (int i = 0; i < 50 * 400; ++i) {
      const index_t drawn = draws.below(n);
      ASSERT_GE(drawn, 0);
      ASSERT_LT(drawn, n);
      ++classes[static_cast<std::size_t>(static_cast<double>(drawn) /
                                         static_cast<double>(n) * 49.999999)];
    }
    EXPECT_LT(deviations(classes, 400), 4.0) << n;
  }
}

TEST(Draws, HappensWithTheProbability) {
  Draws draws(5, {0, 0, 0}, Purpose::text);
  int happened = 0;
  for (int i = 0; i < 20000; ++i) {
    happened += draws.happens(0.1) ? 1 : 0;
    EXPECT_FALSE(draws.happens(0.0));
    EXPECT_TRUE(draws.happens(1.0));
  }
  EXPECT_NEAR(happened, 2000, 5 * std::sqrt(2000 * 0.9));
}

TEST(Draws, ChoicesAreAlike) {
  std::map<std::vector<std::uint8_t>, int> choices;
  std::vector<std::uint8_t> marks(6, 9);
  for (index_t window = 0; window < 20 * 400; ++window) {
    Draws(3, {0, 0, window}, Purpose::hidden_spans).choose(3, marks);
    ASSERT_EQ(std::accumulate(marks.begin(), marks.end(), 0), 3);
    ++choices[marks];
  }
  std::vector<double> observed;
  for (const auto& [choice, count] : choices) observed.push_back(count);
  ASSERT_EQ(observed.size(), 20u);
  EXPECT_LT(deviations(observed, 400), 4.0);
  Draws draws(3, {0, 0, 0}, Purpose::hidden_spans);
  draws.choose(0, marks);
  EXPECT_EQ(marks, std::vector<std::uint8_t>(6, 0));
  draws.choose(6, marks);
  EXPECT_EQ(marks, std::vector<std::uint8_t>(6, 1));
  draws.choose(0, {});
  EXPECT_THROW(draws.choose(7, marks), Error);
}

}  // namespace
}  // namespace trireme::data

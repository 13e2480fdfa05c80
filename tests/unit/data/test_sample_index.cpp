// Permutations are bijections and look random; windows, splits and blends by hand.
#include "data/sample_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "data/permutation.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

TEST(SampleIndexPermutation, IsABijection) {
  for (const std::uint64_t n :
       {1, 2, 3, 4, 5, 7, 16, 17, 31, 33, 257, 1000, 65537, 100003}) {
    const Permutation permutation(n, 42, 7);
    std::vector<bool> hit(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = permutation(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(hit[to]) << n << ": " << to << " twice";
      hit[to] = true;
    }
    EXPECT_THROW(permutation(n), Error);
  }
}

TEST(SampleIndexPermutation, OfManyIsReversibleInTheLarge) {
  // 10^15 elements: neighbours land far apart and nowhere twice.
  const std::uint64_t n = 1000000000000003;
  const Permutation permutation(n, 1, 0);
  std::map<std::uint64_t, std::uint64_t> seen;
  double mean = 0.0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const std::uint64_t to = permutation(n - 1 - i);
    ASSERT_LT(to, n);
    ASSERT_TRUE(seen.emplace(to, i).second);
    mean += static_cast<double>(to) / static_cast<double>(n) / 20000;
  }
  EXPECT_NEAR(mean, 0.5, 5 * 0.2887 / std::sqrt(20000.0));
}

// Sum over cells of (observed - expected)^2 / expected, against its mean and deviation.
double chi_squared_deviations(const std::vector<int>& observed, double expected) {
  double sum = 0.0;
  for (const int count : observed)
    sum += (count - expected) * (count - expected) / expected;
  const double freedom = static_cast<double>(observed.size()) - 1;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST(SampleIndexPermutation, IsUniformOverSeeds) {
  // Where element 3 of 37 goes, over seeds and over epochs.
  for (const bool by_seed : {true, false}) {
    std::vector<int> observed(37);
    for (std::uint64_t k = 0; k < 37 * 400; ++k) {
      ++observed[Permutation(37, by_seed ? k : 5, by_seed ? 0 : k)(3)];
    }
    EXPECT_LT(std::abs(chi_squared_deviations(observed, 400)), 4.0);
  }
  // All 24 orders of four.
  std::map<std::vector<std::uint64_t>, int> orders;
  for (std::uint64_t seed = 0; seed < 24 * 400; ++seed) {
    const Permutation permutation(4, seed, 1);
    ++orders[{permutation(0), permutation(1), permutation(2), permutation(3)}];
  }
  std::vector<int> observed;
  for (const auto& [order, count] : orders) observed.push_back(count);
  ASSERT_EQ(observed.size(), 24u);
  EXPECT_LT(std::abs(chi_squared_deviations(observed, 400)), 4.0);
}

TEST(SampleIndexPermutation, HasNoSerialCorrelation) {
  const std::uint64_t n = 100003;
  const Permutation permutation(n, 9, 9);
  double sum = 0.0;
  for (std::uint64_t i = 0; i + 1 < n; ++i) {
    sum += (static_cast<double>(permutation(i)) / n - 0.5) *
           (static_cast<double>(permutation(i + 1)) / n - 0.5);
  }
  EXPECT_LT(std::abs(sum / (n / 12.0)), 5 / std::sqrt(static_cast<double>(n)));
}

index_t first_token(const SampleIndex& index, index_t position) {
  return index.tokens(index.sample(position).window).begin;
}

TEST(SampleIndexWindow, CoversAnEpochOnce) {
  // 25 tokens from 100 on: floor(24 / 5) = 4 windows of 6 tokens, overlapping by one.
  const SampleIndex index({100, 125}, next_token_windows(5), 1234, Order::shuffled,
                          "test");
  ASSERT_EQ(index.samples_per_epoch(), 4);
  bool epochs_differ = false;
  for (index_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<index_t> windows;
    for (index_t i = 0; i < 4; ++i) {
      windows.push_back(first_token(index, epoch * 4 + i));
      epochs_differ = epochs_differ || windows.back() != first_token(index, i);
    }
    std::sort(windows.begin(), windows.end());
    EXPECT_THAT(windows, ::testing::ElementsAre(100, 105, 110, 115));
  }
  EXPECT_TRUE(epochs_differ);
}

TEST(SampleIndexWindow, IsPure) {
  const SampleIndex a({0, 100000}, next_token_windows(7), 1, Order::shuffled, "a");
  const SampleIndex again({0, 100000}, next_token_windows(7), 1, Order::shuffled, "a");
  const SampleIndex other({0, 100000}, next_token_windows(7), 2, Order::shuffled, "a");
  const SampleIndex second({0, 100000}, next_token_windows(7), 1, Order::shuffled, "a",
                           1);
  int equal_seed = 0, equal_corpus = 0;
  for (const index_t position : {99999999, 0, 5, 14284, 14285, 14286, 7, 5}) {
    const index_t found = first_token(a, position);
    EXPECT_EQ(first_token(again, position), found);
    equal_seed += first_token(other, position) == found;
    equal_corpus += first_token(second, position) == found;
  }
  EXPECT_LT(equal_seed, 2);
  EXPECT_LT(equal_corpus, 2);
  EXPECT_EQ(second.sample(14286).corpus, 1);
  EXPECT_EQ(second.sample(14286).epoch, 1);
  const SampleIndex in_order({0, 100000}, next_token_windows(7), 1, Order::sequential,
                             "a");
  EXPECT_EQ(first_token(in_order, 3), 21);
  EXPECT_EQ(first_token(in_order, 14285 + 3), 21);
}

// Windows that share no token, and such that share many.
TEST(SampleIndexWindow, AreAsFarApartAsTheirStride) {
  const SampleIndex apart({100, 125}, {.tokens = 6, .stride = 6}, 1, Order::sequential,
                          "x");
  EXPECT_EQ(apart.samples_per_epoch(), 4);
  EXPECT_EQ(apart.tokens(3).begin, 118);
  EXPECT_EQ(apart.tokens(3).end, 124);
  EXPECT_EQ(apart.left_out(), 1);
  const SampleIndex close({100, 125}, {.tokens = 10, .stride = 3}, 1, Order::sequential,
                          "x");
  EXPECT_EQ(close.samples_per_epoch(), 6);
  EXPECT_EQ(close.tokens(5).end, 125);
  EXPECT_EQ(close.left_out(), 0);
  const SampleIndex tail({100, 125}, {.tokens = 6, .stride = 6}, 1, Order::sequential,
                         "x", 0, Tail::counted);
  EXPECT_EQ(tail.samples_per_epoch(), 5);
  EXPECT_EQ(tail.tokens(4).size(), 1);
}

TEST(SampleIndexWindow, NeedsOneSample) {
  EXPECT_EQ(SampleIndex({0, 6}, next_token_windows(5), 1, Order::shuffled, "x")
                .samples_per_epoch(),
            1);
  EXPECT_THAT(
      test::message_of<InputError>([] {
        SampleIndex({0, 5}, next_token_windows(5), 1, Order::shuffled, "'validation'");
      }),
      HasSubstr("'validation' has 5 tokens, one sample takes 6"));
  EXPECT_THROW(SampleIndex({0, 0}, next_token_windows(5), 1, Order::shuffled, "x"),
               InputError);
}

// Every token but the first is a label once, whatever the size.
TEST(SampleIndexTail, IsALastShorterWindow) {
  for (index_t tokens = 2; tokens < 24; ++tokens) {
    const TokenRange range{7, 7 + tokens};
    const SampleIndex whole(range, next_token_windows(5), 1, Order::sequential, "x", 0,
                            Tail::counted);
    std::vector<index_t> labels;
    for (index_t p = 0; p < whole.samples_per_epoch(); ++p) {
      const TokenRange window = whole.tokens(whole.sample(p).window);
      for (index_t i = window.begin + 1; i < window.end; ++i) labels.push_back(i);
    }
    std::vector<index_t> expected(static_cast<std::size_t>(tokens - 1));
    std::iota(expected.begin(), expected.end(), range.begin + 1);
    EXPECT_EQ(labels, expected) << tokens;
    EXPECT_EQ(whole.left_out(), 0) << tokens;
    if (tokens < 6) continue;
    const SampleIndex cut(range, next_token_windows(5), 1, Order::sequential, "x");
    EXPECT_EQ(cut.tokens(0).size(), 6);
    EXPECT_EQ(cut.samples_per_epoch() * 5 + cut.left_out(), tokens - 1) << tokens;
  }
  EXPECT_THAT(test::message_of<InputError>([] {
                SampleIndex({3, 4}, next_token_windows(5), 1, Order::sequential, "'one'",
                            0, Tail::counted);
              }),
              HasSubstr("'one' has 1 token: there is none to predict"));
}

TEST(SampleIndexSplit, IsContiguousAndWhole) {
  const auto parts = split_tokens(1001, {0.98, 0.02, 0.0});
  EXPECT_EQ(parts[0].begin, 0);
  EXPECT_EQ(parts[0].end, 980);
  EXPECT_EQ(parts[1].begin, 980);
  EXPECT_EQ(parts[1].end, 1001);
  EXPECT_EQ(parts[2].size(), 0);
  EXPECT_EQ(split_tokens(1000000007, {0.1, 0.2, 0.7}).back().end, 1000000007);
  for (const std::vector<double>& bad :
       std::vector<std::vector<double>>{{0.5, 0.4}, {1.5, -0.5}, {}, {NAN, 1.0}}) {
    EXPECT_THAT(test::message_of<InputError>([&] { split_tokens(10, bad); }),
                HasSubstr("data.split is ["));
  }
}

// How far any corpus of the blend is from its share at the worst of the first prefixes;
// the bounds of sample_index.hpp hold at each of them.
double worst_deviation(const std::vector<double>& weights, index_t prefixes = 20000) {
  const Blend blend(weights);
  const std::size_t corpora = weights.size();
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> most(corpora);  // above its share
  double left_over = 0.0, rest = total;
  for (std::size_t k = 0; k < corpora; ++k) {
    const double share = weights[k] / rest;
    most[k] = share * left_over;
    left_over = (1.0 - share) * left_over + 1.0;
    rest -= weights[k];
  }
  for (const double bound : most) {
    EXPECT_LE(bound, static_cast<double>(corpora - 1) + 1e-9);
  }
  std::vector<index_t> count(corpora, 0);
  double worst = 0.0;
  for (index_t p = 0; p < prefixes; ++p) {
    const Blend::Place place = blend.place(p);
    // Each corpus is read in its own order without gaps.
    const index_t next = count[static_cast<std::size_t>(place.corpus)]++;
    bool holds = place.position == next;
    const double rounding = static_cast<double>(p + 1) * 0x1p-32;
    for (std::size_t k = 0; k < corpora; ++k) {
      const double off =
          static_cast<double>(count[k]) - static_cast<double>(p + 1) * weights[k] / total;
      holds = holds && off > -1.0 - rounding && off < most[k] + rounding &&
              blend.count(static_cast<int>(k), p + 1) == count[k];
      worst = std::max(worst, std::abs(off));
    }
    if (!holds) {
      ADD_FAILURE() << "corpus " << place.corpus << " at " << p;
      break;
    }
  }
  return worst;
}

TEST(SampleIndexBlend, KeepsShares) {
  EXPECT_NEAR(worst_deviation({3.0, 1.0, 2.5}), 1.46, 0.01);  // as docs/corpora.md says
  EXPECT_LT(worst_deviation({3.0, 0.5}), 1.0 + 1e-5);
  EXPECT_LT(worst_deviation({0.013, 1.0}), 1.0 + 1e-5);
  EXPECT_LT(worst_deviation({3.0, 0.5, 1.0, 0.25}), 3.0);
  EXPECT_LT(worst_deviation(std::vector<double>(7, 1.0)), 6.0);
  EXPECT_LT(worst_deviation({0.01, 0.02, 0.03, 0.04, 5.0}), 4.0);
}

// At each of the first million prefixes, in whichever order the corpora come.
TEST(SampleIndexBlend, KeepsSharesThatAreFarApart) {
  std::vector<double> weights;
  for (int k = 0; k < 8; ++k) weights.push_back(std::pow(1e4, k / 7.0));
  EXPECT_LT(worst_deviation(weights, 1'000'000), 7.0);
  std::ranges::reverse(weights);
  EXPECT_LT(worst_deviation(weights, 1'000'000), 7.0);
  std::swap(weights[0], weights[4]);
  std::swap(weights[7], weights[2]);
  EXPECT_LT(worst_deviation(weights, 1'000'000), 7.0);
}

TEST(SampleIndexBlend, OddWeights) {
  EXPECT_EQ(Blend({5.0}).place(77).position, 77);
  EXPECT_THROW(Blend({}), InputError);
  EXPECT_THROW(Blend({1.0, 0.0}), InputError);
  EXPECT_THROW(Blend({1.0, NAN}), InputError);
}

std::string blend_error(const std::vector<double>& weights) {
  return test::message_of<InputError>([&] { Blend blend(weights); });
}

// What can be asked before a blend is made is what making it says, and the weights that
// are proposed instead have no problem.
TEST(SampleIndexBlend, WeightsTooFarApart) {
  const std::vector<double> nine(9, 1e3);
  std::vector<double> small_first = nine, small_last = nine;
  small_first.insert(small_first.begin(), 1e-6);
  small_last.push_back(1e-6);
  for (const auto& [weights, mended] :
       {std::pair{std::vector{1e10, 1.0}, std::vector{1e10, 2.4}},
        {{1.0, 1e10}, {2.4, 1e10}},
        {{1e-12, 1.0}, {2.4e-10, 1.0}},
        {{3.0, 1e12, 500.0}, {240.0, 1e12, 500.0}},
        {{1e308, 1e308}, {1.0, 1.0}},
        {{1e308, 1e308, 1e290}, {1.0, 1.0, 4.8e-10}},
        {small_first, {2.2e-6, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3, 1e3}}}) {
    SCOPED_TRACE(testing::PrintToString(weights));
    const std::string problem = blend_problem(weights);
    EXPECT_THAT(problem, HasSubstr("not all corpora would be taken"));
    EXPECT_THAT(blend_error(weights), HasSubstr("data.train " + problem));
    const std::vector<double> nearest = nearest_blend(weights);
    ASSERT_EQ(nearest.size(), mended.size());
    for (std::size_t k = 0; k < mended.size(); ++k) {
      EXPECT_DOUBLE_EQ(nearest[k], mended[k]) << k;
    }
    EXPECT_EQ(blend_problem(nearest), "");
    EXPECT_NO_THROW(Blend{nearest});
  }
  EXPECT_EQ(blend_problem({1e10, 1.0}),
            "has weights from 1 to 10000000000, too far apart: not all corpora would be "
            "taken");
  EXPECT_THAT(blend_problem({1e308, 1e308}), HasSubstr("without a finite sum"));
  // By the order: what a small one leaves need not be said to more than 32 bits.
  for (const auto& weights : {std::vector{1e9, 1.0}, {1e6, 1.0, 1e-6}, small_last}) {
    EXPECT_EQ(blend_problem(weights), "");
    EXPECT_NO_THROW(Blend{weights});
  }
}

// The limit of the shares itself, and what holds for whichever order.
TEST(SampleIndexBlend, SharesAreKeptTo32Bits) {
  const double part = 0x1p-33;
  EXPECT_EQ(blend_problem({1.01 * part, 1.0}), "");
  EXPECT_NE(blend_problem({0.99 * part, 1.0}), "");
  EXPECT_EQ(blend_problem({1.0, 1.01 * part}), "");
  EXPECT_NE(blend_problem({1.0, 0.99 * part}), "");
  // A corpus of the least part is taken once in so many samples.
  const Blend blend({1.0, kLeastPart});
  EXPECT_NEAR(static_cast<double>(blend.count(1, index_t{1} << 50)), kLeastPart * 0x1p50,
              0.3 * kLeastPart * 0x1p50);
  for (const std::size_t corpora : {2, 3, 100, 4099}) {
    for (const std::size_t large : {std::size_t{0}, corpora / 2, corpora - 1}) {
      std::vector<double> weights(corpora, kLeastPart);
      weights[large] = 1.0 - kLeastPart * static_cast<double>(corpora - 1);
      EXPECT_EQ(blend_problem(weights), "") << corpora << " " << large;
    }
  }
}

}  // namespace
}  // namespace trireme::data

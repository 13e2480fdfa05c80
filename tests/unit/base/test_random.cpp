// Philox against its published known answers; independence of the keys.
#include "base/random.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace trireme::random {
namespace {

// Random123's kat_vectors: philox4x32-10, all-zero counter and key.
TEST(RandomPhilox, KnownAnswer) {
  const Generator zero{.stream = Stream::initialisation};
  const Words words = zero.block(0);
  EXPECT_EQ(words.word[0], 0x6627e8d5u);
  EXPECT_EQ(words.word[1], 0xe169c58du);
  EXPECT_EQ(words.word[2], 0xbc57ac4cu);
  EXPECT_EQ(words.word[3], 0x9b00dbd8u);
}

TEST(RandomPhilox, EveryCoordinateMatters) {
  const Generator base{.seed = 1, .owner = 2, .layer = 3};
  std::set<std::uint32_t> first;
  first.insert(base.block(0).word[0]);
  first.insert(base.block(1).word[0]);
  first.insert(base.block(1ull << 40).word[0]);
  for (Generator other :
       {Generator{.seed = 1ull << 40, .owner = 2, .layer = 3},
        Generator{.seed = 1, .owner = 3, .layer = 3},
        Generator{.seed = 1, .owner = 2 + (1ull << 40), .layer = 3},
        Generator{.seed = 1, .owner = 2, .layer = 4},
        Generator{.seed = 1, .owner = 2, .layer = 3, .site = Site::mlp_output},
        Generator{.seed = 1, .owner = 2, .layer = 3, .stream = Stream::evaluation}}) {
    first.insert(other.block(0).word[0]);
  }
  EXPECT_EQ(first.size(), 9u);
}

// What GPUs compute, against the library's, also where products have all their bits.
template <int kRounds>
void expect_rounds_of_the_library() {
  Generator generator{.seed = 0x9e3779b97f4a7c15u, .owner = 77, .layer = 5};
  for (std::uint64_t n = 1; n < (std::uint64_t{1} << 47); n = 5 * n + 0x1234567) {
    generator.seed = 0xda942042e4dd58b5u * generator.seed + n;
    generator.owner = n ^ generator.seed >> 16;
    const auto counter = generator.counter(n);
    const auto want = r123::Philox4x32_R<kRounds>()(counter, generator.key());
    const Words found =
        philox<kRounds>({{counter[0], counter[1], counter[2], counter[3]}},
                        generator.key()[0], generator.key()[1]);
    for (int k = 0; k < 4; ++k) ASSERT_EQ(found.word[k], want[k]) << n << ", word " << k;
  }
}

TEST(RandomPhilox, OfGpusIsThatOfTheLibrary) {
  expect_rounds_of_the_library<7>();
  expect_rounds_of_the_library<10>();
}

// Random123's kat_vectors: philox4x32-7, counter and key all zeros, and all ones.
TEST(RandomPhilox, KnownAnswerOfSevenRounds) {
  const Generator zeros{.stream = Stream::initialisation};
  const Generator ones{.seed = ~std::uint64_t{0},
                       .owner = (std::uint64_t{1} << 48) - 1,
                       .layer = 0xffff,
                       .site = static_cast<Site>(0xff),
                       .stream = static_cast<Stream>(0xff)};
  const Words a = DropoutWords::call(zeros, 0);
  const Words b = DropoutWords::call(ones, (std::uint64_t{1} << 48) - 1);
  const std::uint32_t of_zeros[] = {0x5f6fb709u, 0x0d893f64u, 0x4f121f81u, 0x4f730a48u};
  const std::uint32_t of_ones[] = {0x5207ddc2u, 0x45165e59u, 0x4d8ee751u, 0x8c52f662u};
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(a.word[k], of_zeros[k]) << k;
    EXPECT_EQ(b.word[k], of_ones[k]) << k;
  }
}

TEST(RandomDropoutWords, ThresholdAndScale) {
  EXPECT_EQ(DropoutWords::threshold(0.1), 6554u);
  EXPECT_EQ(DropoutWords::keep_scale(6554u), 65536.0 / 58982.0);
  EXPECT_EQ(DropoutWords::keep_scale(0u), 1.0);
  for (const double p : {0.0, 1.0 / 65536, 0.5, 65535.0 / 65536}) {
    EXPECT_TRUE(DropoutWords::can_express(p)) << p;
  }
  for (const double p : {-0.1, 7e-6, 1 - 7e-6, 1.0, 2.0, std::nan("")}) {
    EXPECT_FALSE(DropoutWords::can_express(p)) << p;
  }
}

constexpr int kCalls = 1 << 17;
constexpr double kRate = 0.1;

// Of each of kCalls calls, the elements that are dropped: bit w is word w's.
std::vector<std::uint8_t> drops_of(const Generator& generator, std::uint64_t first = 0) {
  std::vector<std::uint8_t> drops(kCalls);
  for (int n = 0; n < kCalls; ++n) {
    const Words call =
        DropoutWords::call(generator, first + static_cast<std::uint64_t>(n));
    for (int w = 0; w < 8; ++w) {
      const bool is_dropped =
          DropoutWords::half(call.word[w / 2], w % 2) < DropoutWords::threshold(kRate);
      drops[n] = static_cast<std::uint8_t>(drops[n] | is_dropped << w);
    }
  }
  return drops;
}

// Number of pairs (bit w of x[n], bit v of y[n]) that are both dropped.
int both(const std::vector<std::uint8_t>& x, int w, const std::vector<std::uint8_t>& y,
         int v) {
  int count = 0;
  for (int n = 0; n < kCalls; ++n) count += x[n] >> w & y[n] >> v & 1;
  return count;
}

// Within five standard deviations of a binomial count.
void expect_rate(double count, double trials, double rate, const std::string& what) {
  EXPECT_NEAR(count / trials, rate, 5 * std::sqrt(rate * (1 - rate) / trials)) << what;
}

TEST(RandomDropoutWords, RateOfEveryWord) {
  const auto drops = drops_of({.seed = 42});
  for (int w = 0; w < 8; ++w) {
    expect_rate(both(drops, w, drops, w), kCalls, 6554.0 / 65536,
                fmt::format("word {}", w));
  }
}

// Where two elements are independent, both are dropped at the rate's square: the words of
// a call among each other (so also the halves of a word), and the same words of other
// rows, samples, layers, sites and seeds.
TEST(RandomDropoutWords, Independent) {
  const double square = 6554.0 / 65536 * (6554.0 / 65536);
  const Generator base{.seed = 42, .owner = 7, .layer = 3, .site = Site::mlp_output};
  const auto drops = drops_of(base);
  for (int w = 0; w < 8; ++w) {
    for (int v = 0; v < w; ++v) {
      expect_rate(both(drops, w, drops, v), kCalls, square,
                  fmt::format("words {} and {}", v, w));
    }
  }
  const auto with = [&](auto change) {
    Generator other = base;
    change(other);
    return drops_of(other);
  };
  const std::vector<std::pair<std::string, std::vector<std::uint8_t>>> others = {
      {"next call", drops_of(base, 1)},
      {"next row of 768", drops_of(base, 96)},
      {"next row of 1024 keys", drops_of(base, 128)},
      {"next sample", with([](Generator& g) { g.owner += 1; })},
      {"sample of the next step", with([](Generator& g) { g.owner += 512; })},
      {"next layer", with([](Generator& g) { g.layer += 1; })},
      {"other site", with([](Generator& g) { g.site = Site::attention_output; })},
      {"next seed", with([](Generator& g) { g.seed += 1; })}};
  for (const auto& [name, other] : others) {
    double count = 0;
    for (int w = 0; w < 8; ++w) count += both(drops, w, other, w);
    expect_rate(count, 8.0 * kCalls, square, name);
  }
}

TEST(RandomOwner, NamesDiffer) {
  EXPECT_NE(owner_of("layers/0/mlp/fc1/weight"), owner_of("layers/1/mlp/fc1/weight"));
  EXPECT_LT(owner_of("layers/0/mlp/fc1/weight"), 1ull << 48);
}

}  // namespace
}  // namespace trireme::random

// Philox against its published known answers; independence of the keys.
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <set>

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

TEST(RandomThreshold, MatchesProbability) {
  const std::uint32_t threshold = drop_threshold(0.1);
  const Generator generator{.seed = 42};
  int dropped = 0;
  constexpr int kBlocks = 100000;
  for (int n = 0; n < kBlocks; ++n) {
    const Words words = generator.block(static_cast<std::uint64_t>(n));
    for (const std::uint32_t word : words.word) dropped += word < threshold ? 1 : 0;
  }
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(dropped / (4.0 * kBlocks), 0.1, 5 * std::sqrt(0.09 / (4.0 * kBlocks)));
}

TEST(RandomOwner, NamesDiffer) {
  EXPECT_NE(owner_of("layers/0/mlp/fc1/weight"), owner_of("layers/1/mlp/fc1/weight"));
  EXPECT_LT(owner_of("layers/0/mlp/fc1/weight"), 1ull << 48);
}

}  // namespace
}  // namespace trireme::random

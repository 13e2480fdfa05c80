// A digest depends on every bit and on its place.
#include "kernels/digest.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace trireme::kernels {
namespace {

std::uint64_t digest(const std::vector<std::uint32_t>& words) {
  const DeviceArray<std::uint32_t> memory("words", words.size());
  const auto host = Kokkos::create_mirror_view(memory);
  for (std::size_t i = 0; i < words.size(); ++i) host(i) = words[i];
  Kokkos::deep_copy(memory, host);
  return digest_of(Exec(), View1<const std::uint32_t>(memory.data(), words.size()));
}

TEST(Digest, DependsOnEveryBitAndItsPlace) {
  std::vector<std::uint32_t> words(33, 0);
  std::set<std::uint64_t> seen = {digest(words)};
  for (std::uint32_t& word : words) {
    for (int bit = 0; bit < 32; ++bit) {
      word ^= 1u << bit;
      EXPECT_TRUE(seen.insert(digest(words)).second);
      word ^= 1u << bit;
    }
  }
  words[3] = 5;
  words[4] = 6;
  const std::uint64_t before = digest(words);
  EXPECT_EQ(digest(words), before);
  std::swap(words[3], words[4]);
  EXPECT_NE(digest(words), before);
}

TEST(Digest, OfSizesBeyondOneRoundOfThreads) {
  std::vector<std::uint32_t> words((1 << 16) + 1, 7);
  const std::uint64_t before = digest(words);
  EXPECT_EQ(digest(words), before);
  words.back() = 8;
  EXPECT_NE(digest(words), before);
  EXPECT_EQ(digest({}), 0u);
}

}  // namespace
}  // namespace trireme::kernels

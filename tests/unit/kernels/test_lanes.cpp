// Columns side by side against single ones: every 16-bit value read, and numbers around
// each of them written; random words; sums behind the last kLanes.
#include "kernels/impl/lanes.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace trireme::kernels {
namespace {

#if !defined(KOKKOS_ENABLE_CUDA) && defined(__GNUC__)

// kLanes numbers read side by side, or written so, are those of single columns; of NaN it
// is enough that it stays one.
template <class T>
void expect_same_numbers(const std::vector<float>& numbers) {
  std::vector<T> narrow(numbers.size());
  std::vector<float> back(numbers.size());
  const auto count = static_cast<index_t>(numbers.size());
  for_each_lanes(HostRow{}, count, [&](auto j) {
    write(back.data(), j,
          written<float>(narrow.data(), j, read<float>(numbers.data(), j)));
  });
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const T want(numbers[i]);
    const float wide = want;
    if (std::isnan(numbers[i])) {
      EXPECT_TRUE(std::isnan(static_cast<float>(narrow[i])) && std::isnan(back[i]));
    } else {
      EXPECT_EQ(narrow[i].bits, want.bits) << numbers[i];
      EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]),
                std::bit_cast<std::uint32_t>(wide));
    }
  }
}

TEST(Lanes, NarrowAndWidenAsSingleColumnsDo) {
  std::vector<float> of_bf16, of_fp16;
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      of_bf16.push_back(std::bit_cast<float>(bits << 16 | low));
    }
    fp16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto word = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    for (const std::uint32_t more : {0u, 1u, 0xfffu, 0x1000u, 0x1001u}) {
      of_fp16.push_back(std::bit_cast<float>(word + more));
    }
  }
  expect_same_numbers<bf16>(of_bf16);
  expect_same_numbers<fp16>(of_fp16);
  expect_same_numbers<fp16>(of_bf16);
}

TEST(Lanes, WordsBelowTheThresholdMakeZero) {
  std::uint16_t words[kLanes];
  float numbers[kLanes], left[kLanes];
  for (const std::uint32_t threshold : {1u, 6554u, 32768u, 65535u}) {
    for (int l = 0; l < kLanes; ++l) {
      words[l] = static_cast<std::uint16_t>(l % 4 == 0 ? threshold : threshold + l - 16);
      numbers[l] = static_cast<float>(l + 1);
    }
    const LanesAt all{0};
    write(left, all,
          zero_below(threshold, words_at(words, all), read<float>(numbers, all)));
    for (int l = 0; l < kLanes; ++l) {
      EXPECT_EQ(left[l], words[l] < threshold ? 0.0f : numbers[l]);
    }
  }
}

template <class A>
void expect_same_sums() {
  std::vector<A> numbers(257);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<A>(std::sin(static_cast<double>(i)) * 1e3);
  }
  for (const index_t count : {0, 1, 31, 32, 33, 64, 257}) {
    const A* const row = numbers.data();
    const A sum = sum_lanes<A>(HostRow{}, count, [=](auto j) { return read<A>(row, j); });
    EXPECT_EQ(sum, sum_columns<A>(HostRow{}, count, [=](index_t j) { return row[j]; }));
  }
}
TEST(Lanes, SumsHaveTheBitsOfColumns) {
  expect_same_sums<float>();
  expect_same_sums<double>();
}

#endif

}  // namespace
}  // namespace trireme::kernels

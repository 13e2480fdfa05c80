// Conversions of bf16 and fp16 against the definition: nearest representable, ties to
// even.
#include "base/types.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

// Every value of a 16-bit type survives the way to float and back.
template <class T>
void expect_round_trip() {
  for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = value;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide))));
    } else {
      EXPECT_EQ(T(wide).bits, bits);
    }
  }
}

// Between two neighbours: below the midpoint goes down, above goes up, the tie to even.
template <class T>
void expect_nearest_even(std::uint16_t low) {
  T a, b;
  a.bits = low;
  b.bits = static_cast<std::uint16_t>(low + 1);
  const float middle = 0.5f * static_cast<float>(a) + 0.5f * static_cast<float>(b);
  EXPECT_EQ(T(std::nextafter(middle, 0.0f)).bits, a.bits);
  EXPECT_EQ(T(std::nextafter(middle, INFINITY)).bits, b.bits);
  EXPECT_EQ(T(middle).bits, low % 2 == 0 ? a.bits : b.bits);
}

TEST(TypesBf16, RoundTrip) {
  expect_round_trip<bf16>();
}
TEST(TypesFp16, RoundTrip) {
  expect_round_trip<fp16>();
}

TEST(TypesBf16, NearestEven) {
  for (std::uint16_t low : {0x3f80, 0x3f81, 0x0081, 0x4000, 0x7f00}) {
    expect_nearest_even<bf16>(low);
  }
}

TEST(TypesFp16, NearestEven) {
  for (std::uint16_t low : {0x3c00, 0x3c01, 0x0001, 0x03ff, 0x0400, 0x7bfe}) {
    expect_nearest_even<fp16>(low);
  }
}

TEST(TypesFp16, Overflow) {
  EXPECT_EQ(fp16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(fp16(65519.9f).bits, 0x7bff);
  EXPECT_EQ(fp16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(fp16(-1e9f).bits, 0xfc00);
}

TEST(TypesDtype, SizesAndNames) {
  EXPECT_EQ(size_of(dtype_of<float>), 4u);
  EXPECT_EQ(size_of(dtype_of<bf16>), 2u);
  EXPECT_EQ(size_of(dtype_of<std::uint64_t>), 8u);
  EXPECT_EQ(name_of(dtype_of<bf16>), "bfloat16");
}

}  // namespace
}  // namespace trireme

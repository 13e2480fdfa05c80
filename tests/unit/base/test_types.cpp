// Conversions of bf16 and fp16 against the definition: nearest representable, ties to
// even.
#include "base/types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

// What a type is: bits of exponent and of mantissa, as IEEE 754 has them.
template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int kExponent = 8, kMantissa = 7;
};
template <>
struct Format<fp16> {
  static constexpr int kExponent = 5, kMantissa = 10;
};
constexpr std::uint32_t kSign = 0x8000;
// Bits of infinity; what is larger is no number.
template <class T>
constexpr std::uint32_t kInfinity = kSign - (1u << Format<T>::kMantissa);

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// By the definition, of bits without the sign. Infinity is what would be there if the
// exponent went on: what numbers beyond the largest are rounded by.
template <class T>
double magnitude_of(std::uint32_t bits) {
  constexpr int kBias = (1 << (Format<T>::kExponent - 1)) - 1;
  const auto mantissa = static_cast<int>(bits & ((1u << Format<T>::kMantissa) - 1));
  const auto exponent = static_cast<int>(bits >> Format<T>::kMantissa);
  const int implicit = exponent == 0 ? 0 : 1 << Format<T>::kMantissa;
  return std::ldexp(mantissa + implicit,
                    std::max(exponent, 1) - kBias - Format<T>::kMantissa);
}

// Every value is read as the definition says, and survives the way to float and back.
template <class T>
void expect_values() {
  for (const std::uint32_t sign : {0u, kSign}) {
    for (std::uint32_t low = 0; low < kSign; ++low) {
      const T value = from_bits<T>(sign | low);
      const float wide = value;
      ASSERT_EQ(std::signbit(wide), sign != 0) << value.bits;
      if (low > kInfinity<T>) {
        ASSERT_TRUE(std::isnan(wide)) << value.bits;
        ASSERT_TRUE(std::isnan(static_cast<float>(T(wide)))) << value.bits;
        continue;
      }
      if (low == kInfinity<T>) {
        ASSERT_TRUE(std::isinf(wide));
      } else {
        ASSERT_EQ(std::abs(static_cast<double>(wide)), magnitude_of<T>(low))
            << value.bits;
      }
      ASSERT_EQ(T(wide).bits, value.bits);
    }
  }
}

// Between every value and the next, the last of which is infinity: below the midpoint
// goes down, above goes up, the tie to even.
template <class T>
void expect_nearest_even() {
  for (const std::uint32_t sign : {0u, kSign}) {
    const float one = sign != 0 ? -1.0f : 1.0f;
    for (std::uint32_t low = 0; low < kInfinity<T>; ++low) {
      const std::uint32_t even = low % 2 == 0 ? low : low + 1;
      const auto middle =
          static_cast<float>(0.5 * (magnitude_of<T>(low) + magnitude_of<T>(low + 1)));
      ASSERT_EQ(T(one * middle).bits, sign | even) << "tie above " << low;
      const float below = std::nextafter(middle, 0.0f);
      ASSERT_EQ(T(one * below).bits, sign | low) << "below the tie above " << low;
      const float above = std::nextafter(middle, INFINITY);
      ASSERT_EQ(T(one * above).bits, sign | (low + 1)) << "above the tie above " << low;
    }
  }
}

// What is no number stays none, wherever its bits are: a mantissa whose upper bits are
// all zero is not taken for infinity.
template <class T>
void expect_no_numbers() {
  for (int bit = 0; bit < 23; ++bit) {
    for (const std::uint32_t head : {0x7f800000u, 0xff800000u}) {
      const auto wide = std::bit_cast<float>(head | (1u << bit));
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide)))) << "bit " << bit;
      EXPECT_EQ(T(wide).bits & kSign, (head >> 16) & kSign) << "bit " << bit;
    }
  }
}

TEST(TypesBf16, EveryValueIsThatOfTheDefinition) {
  expect_values<bf16>();
}
TEST(TypesFp16, EveryValueIsThatOfTheDefinition) {
  expect_values<fp16>();
}

TEST(TypesBf16, NearestEvenBetweenAllNeighbours) {
  expect_nearest_even<bf16>();
}
TEST(TypesFp16, NearestEvenBetweenAllNeighbours) {
  expect_nearest_even<fp16>();
}

TEST(TypesBf16, WhatIsNoNumberStaysNone) {
  expect_no_numbers<bf16>();
}
TEST(TypesFp16, WhatIsNoNumberStaysNone) {
  expect_no_numbers<fp16>();
}

// Far from all values of the type.
TEST(TypesFp16, LeastAndLargestFloats) {
  using Limits = std::numeric_limits<float>;
  for (const float least : {Limits::denorm_min(), Limits::min(), 1e-20f}) {
    EXPECT_EQ(fp16(least).bits, 0);
    EXPECT_EQ(fp16(-least).bits, kSign);
  }
  EXPECT_EQ(fp16(Limits::max()).bits, kInfinity<fp16>);
  EXPECT_EQ(fp16(Limits::lowest()).bits, kSign | kInfinity<fp16>);
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

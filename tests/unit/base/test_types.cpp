// Conversions of bf16 and fp16 against the definition: nearest representable, ties to
// even.
#include "base/types.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/exec.hpp"
#include "support/narrow_types.hpp"

namespace trireme {
namespace {

using test::kInfinity;
using test::kSign;
using test::magnitude_of;

template <class T>
T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
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
      const auto middle = test::tie_above<T>(low);
      ASSERT_EQ(T(one * middle).bits, sign | even) << "tie above " << low;
      const float below = std::nextafter(middle, 0.0f);
      ASSERT_EQ(T(one * below).bits, sign | low) << "below the tie above " << low;
      const float above = std::nextafter(middle, INFINITY);
      ASSERT_EQ(T(one * above).bits, sign | (low + 1)) << "above the tie above " << low;
    }
  }
}

// What a launch makes of numbers: on a GPU, by its instructions.
template <class T>
void convert(const float* numbers, T* narrow, float* wide, index_t count) {
  launch(
      Exec(), "trireme::test::convert", count, KOKKOS_LAMBDA(const index_t i) {
        narrow[i] = T(numbers[i]);
        wide[i] = static_cast<float>(narrow[i]);
      });
}
template <class T>
void expect_device_rounds_to_nearest() {
  const std::vector<float> numbers = test::numbers_to_round();
  test::expect_nearest(numbers, test::rounded_by<T>(numbers, convert<T>));
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

TEST(TypesBf16, DeviceRoundsToNearestEven) {
  expect_device_rounds_to_nearest<bf16>();
}
TEST(TypesFp16, DeviceRoundsToNearestEven) {
  expect_device_rounds_to_nearest<fp16>();
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

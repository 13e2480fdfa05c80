// tests/support/narrow_types.hpp — what bf16 and fp16 are by their definition, and floats
// that are converted to them, on a host and on a GPU.
#ifndef TRIREME_TESTS_SUPPORT_NARROW_TYPES_HPP_
#define TRIREME_TESTS_SUPPORT_NARROW_TYPES_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/exec.hpp"

namespace trireme::test {

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
template <class T>
constexpr int kExponentBias = (1 << (Format<T>::kExponent - 1)) - 1;
constexpr std::uint32_t kSign = 0x8000;
// Bits of infinity; what is larger is no number.
template <class T>
constexpr std::uint32_t kInfinity = kSign - (1u << Format<T>::kMantissa);

// By the definition, of bits without the sign. Infinity is what would be there if the
// exponent went on: what numbers beyond the largest are rounded by.
template <class T>
double magnitude_of(std::uint32_t bits) {
  const auto mantissa = static_cast<int>(bits & ((1u << Format<T>::kMantissa) - 1));
  const auto exponent = static_cast<int>(bits >> Format<T>::kMantissa);
  const int implicit = exponent == 0 ? 0 : 1 << Format<T>::kMantissa;
  return std::ldexp(mantissa + implicit,
                    std::max(exponent, 1) - kExponentBias<T> - Format<T>::kMantissa);
}

// Midway between a value, given by its bits without the sign, and the next.
template <class T>
float tie_above(std::uint32_t bits) {
  return static_cast<float>(0.5 * (magnitude_of<T>(bits) + magnitude_of<T>(bits + 1)));
}

// Bits of the value that is nearest to a number, of two the even one. Arithmetic in
// double is exact here.
template <class T>
std::uint32_t nearest_bits(float number) {
  const std::uint32_t sign = std::signbit(number) ? kSign : 0;
  if (std::isinf(number)) return sign | kInfinity<T>;
  if (number == 0.0f) return sign;
  const double magnitude = std::abs(static_cast<double>(number));
  constexpr int kBias = kExponentBias<T>;
  const int exponent = std::max(std::ilogb(magnitude), 1 - kBias);
  // With the bit of a normal number that is not stored, which adds one to the exponent.
  const double steps =
      std::nearbyint(std::ldexp(magnitude, Format<T>::kMantissa - exponent));
  const auto bits =
      (static_cast<std::uint32_t>(exponent + kBias - 1) << Format<T>::kMantissa) +
      static_cast<std::uint32_t>(steps);
  return sign | std::min(bits, kInfinity<T>);
}

// Every upper half of a float with lower halves about the ties of bf16; the ties of fp16
// and their neighbours. Made up to a multiple of eight.
inline std::vector<float> numbers_to_round() {
  std::vector<float> numbers = {65519.9f, 65520.0f};
  for (std::uint32_t upper = 0; upper <= 0xffffu; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      numbers.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  for (std::uint32_t low = 0; low < kInfinity<fp16>; ++low) {
    const float tie = tie_above<fp16>(low);
    for (const float number :
         {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)}) {
      numbers.push_back(number);
      numbers.push_back(-number);
    }
  }
  while (numbers.size() % 8 != 0) numbers.push_back(0.0f);
  return numbers;
}

// What a launch made of numbers, and the numbers that it read of that.
template <class T>
struct Rounded {
  std::vector<T> narrow;
  std::vector<float> wide;
};

// The results of convert(numbers, narrow, wide, count), which launches on arrays of the
// device. NaNs keep their bits on the way there.
template <class T, class Convert>
Rounded<T> rounded_by(const std::vector<float>& numbers, const Convert& convert) {
  const std::size_t count = numbers.size();
  const DeviceArray<float> from("from", count), wide("wide", count);
  const DeviceArray<T> narrow("narrow", count);
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  Kokkos::deep_copy(from, Kokkos::View<const float*, Kokkos::HostSpace, Unmanaged>(
                              numbers.data(), count));
  convert(from.data(), narrow.data(), wide.data(), static_cast<index_t>(count));
  Kokkos::fence("tests: read back");
  Rounded<T> rounded{std::vector<T>(count), std::vector<float>(count)};
  Kokkos::deep_copy(
      Kokkos::View<T*, Kokkos::HostSpace, Unmanaged>(rounded.narrow.data(), count),
      narrow);
  Kokkos::deep_copy(
      Kokkos::View<float*, Kokkos::HostSpace, Unmanaged>(rounded.wide.data(), count),
      wide);
  return rounded;
}

// The bits are those of the definition and of a host's conversions. Of NaN it is enough
// that it stays one.
template <class T>
void expect_nearest(const std::vector<float>& numbers, const Rounded<T>& got) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint32_t bits = got.narrow[i].bits;
    if (std::isnan(numbers[i])) {
      ASSERT_GT(bits & ~kSign, kInfinity<T>) << "number " << i;
      ASSERT_TRUE(std::isnan(got.wide[i])) << "number " << i;
      continue;
    }
    ASSERT_EQ(bits, nearest_bits<T>(numbers[i])) << i << ": " << numbers[i];
    ASSERT_EQ(bits, T(numbers[i]).bits) << i << ": " << numbers[i];
    const std::uint32_t low = bits & ~kSign;
    const float magnitude =
        low == kInfinity<T> ? INFINITY : static_cast<float>(magnitude_of<T>(low));
    const float value = (bits & kSign) != 0 ? -magnitude : magnitude;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got.wide[i]),
              std::bit_cast<std::uint32_t>(value))
        << "of bits " << bits;
  }
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_NARROW_TYPES_HPP_

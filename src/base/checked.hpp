// base/checked.hpp — integer arithmetic on what files say, which never wraps around.
//
// A count, an extent or an offset that was read from a file may be anything. Whoever
// computes with one asks here, and tells the user where there is no answer.
#ifndef TRIREME_BASE_CHECKED_HPP_
#define TRIREME_BASE_CHECKED_HPP_

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

namespace trireme {

// The exact result, or none where it is no value of T.
template <std::integral T>
constexpr std::optional<T> checked_multiply(T a, T b) {
  T product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return {};
  return product;
}
// A number as a T; none where T does not have it.
template <std::integral T, std::integral From>
constexpr std::optional<T> checked_cast(From value) {
  if (!std::in_range<T>(value)) return {};
  return static_cast<T>(value);
}

// Whether [begin, begin + count) lies in [0, size), for any values.
template <std::integral T>
constexpr bool is_range_within(T begin, T count, T size) {
  return !std::cmp_less(begin, 0) && !std::cmp_less(count, 0) && begin <= size &&
         count <= size - begin;
}

// No run counts as many steps, samples or tokens. Sums and differences of counters up to
// it do not overflow.
inline constexpr std::int64_t kMaxCount = 1'000'000'000'000'000'000;

}  // namespace trireme

#endif  // TRIREME_BASE_CHECKED_HPP_

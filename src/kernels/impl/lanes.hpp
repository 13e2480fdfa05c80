// kernels/impl/lanes.hpp — loops over the columns of a row whose bodies are written once,
// for one column and, on a host, for kLanes of them side by side.
//
// Compilers make poor vectors of loops over 16-bit elements. Here the body of a loop is a
// generic lambda of j: an index_t, and what is read there a number; or a LanesAt, and
// what is read there Lanes of numbers. Its arithmetic is the same, and so are its bits.
// Example: for_each_lanes(team, 70, body) calls body(LanesAt{0}), body(LanesAt{32}),
// body(64) ... body(69). A GPU's threads have eight columns: impl/team_lanes.hpp.
#ifndef TRIREME_KERNELS_IMPL_LANES_HPP_
#define TRIREME_KERNELS_IMPL_LANES_HPP_

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/types.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/team_lanes.hpp"
#include "kernels/impl/vector_rows.hpp"

namespace trireme::kernels {

// Asks for what will be read at j of a row that comes later, which the second cache
// keeps; or written there, for which a core has to get the line, too, and waits for it
// where there are many such rows. Single columns are what is left of a row.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_for(const T*, index_t) {}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_to_write(const T*, index_t) {}
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void ask_ahead_of(const T*, index_t) {}

KOKKOS_FORCEINLINE_FUNCTION std::uint32_t words_at(const std::uint16_t* words,
                                                   index_t i) {
  return words[i];
}
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A zero_below(std::uint32_t threshold, std::uint32_t word,
                                         A value) {
  return word < threshold ? A{0} : value;
}

#if !defined(KOKKOS_ENABLE_CUDA) && defined(__GNUC__)

// kLanes columns from j on.
struct LanesAt {
  index_t j;
  friend LanesAt operator+(index_t begin, LanesAt at) { return {begin + at.j}; }
};

// Numbers of kLanes columns.
template <class A>
struct Lanes {
  using Part = typename impl::VectorOf<A>::type;
  static constexpr int kWidth = impl::VectorOf<A>::lanes;
  static constexpr int kParts = kLanes / kWidth;
  Part part[kParts];

  Lanes() = default;
  Lanes(A value) {
    for (Part& p : part) p = value - Part{};
  }
  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    return apart([&](Part& to, int p) { to = a.part[p] + b.part[p]; });
  }
  friend Lanes operator-(const Lanes& a, const Lanes& b) {
    return apart([&](Part& to, int p) { to = a.part[p] - b.part[p]; });
  }
  friend Lanes operator*(const Lanes& a, const Lanes& b) {
    return apart([&](Part& to, int p) { to = a.part[p] * b.part[p]; });
  }
  template <class Of>
  [[gnu::always_inline]] static Lanes apart(const Of& of) {
    Lanes result;
    for (int p = 0; p < kParts; ++p) of(result.part[p], p);
    return result;
  }
};

namespace detail {

typedef std::uint16_t Halves __attribute__((vector_size(32)));
using impl::Words;
using Floats = Lanes<float>::Part;

template <class A>
[[gnu::always_inline]] inline void load_part(const A* from, typename Lanes<A>::Part& to) {
  std::memcpy(&to, from, sizeof(to));
}
[[gnu::always_inline]] inline void load_part(const bf16* from, Floats& to) {
  Halves halves;
  std::memcpy(&halves, from, sizeof(halves));
  to = reinterpret_cast<Floats>(__builtin_convertvector(halves, Words) << 16);
}
[[gnu::always_inline]] inline void load_part(const fp16* from, Floats& to) {
#if defined(__AVX512F__)
  __m256i halves;
  std::memcpy(&halves, from, sizeof(halves));
  to = reinterpret_cast<Floats>(_mm512_maskz_cvtph_ps(0xffff, halves));
#elif defined(__F16C__)
  __m128i halves[2];
  std::memcpy(&halves, from, sizeof(halves));
  const __m256 wide[2] = {_mm256_cvtph_ps(halves[0]), _mm256_cvtph_ps(halves[1])};
  std::memcpy(&to, wide, sizeof(to));
#else
  for (int l = 0; l < Lanes<float>::kWidth; ++l) to[l] = static_cast<float>(from[l]);
#endif
}

template <class A>
[[gnu::always_inline]] inline void store_part(A* to,
                                              const typename Lanes<A>::Part& from) {
  std::memcpy(to, &from, sizeof(from));
}
// The rounding of bf16's constructor.
[[gnu::always_inline]] inline void store_part(bf16* to, const Floats& from) {
  const auto word = reinterpret_cast<Words>(from);
  const Words rounded = word + 0x7fffu + (word >> 16 & 1u);
  const Words result = (from == from ? rounded : word | 0x400000u) >> 16;
  const auto halves = __builtin_convertvector(result, Halves);
  std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
}
[[gnu::always_inline]] inline void store_part(fp16* to, const Floats& from) {
#if defined(__AVX512F__)
  const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, reinterpret_cast<__m512>(from),
                                               _MM_FROUND_TO_NEAREST_INT);
  std::memcpy(static_cast<void*>(to), &halves, sizeof(halves));
#elif defined(__F16C__)
  __m256 wide[2];
  std::memcpy(wide, &from, sizeof(wide));
  const __m128i halves[2] = {_mm256_cvtps_ph(wide[0], _MM_FROUND_TO_NEAREST_INT),
                             _mm256_cvtps_ph(wide[1], _MM_FROUND_TO_NEAREST_INT)};
  std::memcpy(static_cast<void*>(to), halves, sizeof(halves));
#else
  for (int l = 0; l < Lanes<float>::kWidth; ++l) to[l] = static_cast<fp16>(from[l]);
#endif
}

}  // namespace detail

template <class A, class T>
[[gnu::always_inline]] inline Lanes<A> read(const T* row, LanesAt at) {
  using L = Lanes<A>;
  L value;
  for (int p = 0; p < L::kParts; ++p) {
    detail::load_part(row + at.j + p * L::kWidth, value.part[p]);
  }
  return value;
}
template <class T, class A>
[[gnu::always_inline]] inline void write(T* row, LanesAt at, const Lanes<A>& value) {
  using L = Lanes<A>;
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  if constexpr (std::is_same_v<T, bf16>) {
    // The processor's own rounding, which is the same but for subnormal numbers: those
    // it takes for zero.
    const auto low = reinterpret_cast<__m512>(value.part[0]);
    const auto high = reinterpret_cast<__m512>(value.part[1]);
    constexpr int kSubnormal = 0x20;
    const auto subnormal = _mm512_kor(_mm512_fpclass_ps_mask(low, kSubnormal),
                                      _mm512_fpclass_ps_mask(high, kSubnormal));
    if (__builtin_expect(subnormal == 0, 1)) {
      const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
      std::memcpy(static_cast<void*>(row + at.j), &both, sizeof(both));
      return;
    }
  }
#endif
  for (int p = 0; p < L::kParts; ++p) {
    detail::store_part(row + at.j + p * L::kWidth, value.part[p]);
  }
}

template <class T>
[[gnu::always_inline]] inline void ask_ahead_of(const T* row, LanesAt at) {
  ask_ahead<kLanes>(row + at.j);
}
template <class T>
[[gnu::always_inline]] inline void ask_for(const T* row, LanesAt at) {
  constexpr auto kLine = static_cast<index_t>(64 / sizeof(T));
  for (index_t i = 0; i < kLanes; i += kLine) __builtin_prefetch(row + at.j + i, 0, 2);
}
template <class T>
[[gnu::always_inline]] inline void ask_to_write(const T* row, LanesAt at) {
  constexpr auto kLine = static_cast<index_t>(64 / sizeof(T));
  for (index_t i = 0; i < kLanes; i += kLine) __builtin_prefetch(row + at.j + i, 1);
}

// What f makes of each number, by a loop that compilers make vectors of.
template <class A, class F>
[[gnu::always_inline]] inline Lanes<A> mapped(const Lanes<A>& value, const F& f) {
  A numbers[kLanes];
  write(numbers, LanesAt{0}, value);
  for (A& number : numbers) number = f(number);
  return read<A>(numbers, LanesAt{0});
}

// Random words of the columns at j: in lanes, where they lie.
[[gnu::always_inline]] inline const std::uint16_t* words_at(const std::uint16_t* words,
                                                            LanesAt at) {
  return words + at.j;
}

// The value where its word is not below the threshold, else 0.
template <class A>
[[gnu::always_inline]] inline Lanes<A> zero_below(std::uint32_t threshold,
                                                  const std::uint16_t* words,
                                                  Lanes<A> value) {
  using L = Lanes<A>;
#if defined(__AVX512BW__)
  if constexpr (std::is_same_v<A, float>) {
    const __mmask32 keeps =
        _mm512_cmpge_epu16_mask(_mm512_loadu_si512(words),
                                _mm512_set1_epi16(static_cast<std::int16_t>(threshold)));
    for (int p = 0; p < 2; ++p) {
      value.part[p] = reinterpret_cast<typename L::Part>(
          _mm512_maskz_mov_ps(static_cast<__mmask16>(keeps >> 16 * p),
                              reinterpret_cast<__m512>(value.part[p])));
    }
    return value;
  }
#endif
  typedef std::uint16_t Short __attribute__((vector_size(2 * L::kWidth)));
  using Wide = typename impl::VectorOf<
      std::conditional_t<sizeof(A) == 4, std::uint32_t, std::uint64_t>>::type;
  for (int p = 0; p < L::kParts; ++p) {
    Short of_part;
    std::memcpy(&of_part, words + p * L::kWidth, sizeof(of_part));
    const auto is_below = __builtin_convertvector(of_part, Wide) < threshold;
    value.part[p] = is_below ? typename L::Part{} : value.part[p];
  }
  return value;
}

// Sums in lanes, added up as those of sum_columns() are. Each lane has one column behind
// the last kLanes at most; what it adds is kept by itself, since a vector that is reached
// into is kept in memory.
template <class A>
struct LaneSums {
  Lanes<A> lanes{A{0}};
  A rest[kLanes] = {};

  [[gnu::always_inline]] void add(LanesAt, const Lanes<A>& value) {
    lanes = lanes + value;
  }
  [[gnu::always_inline]] void add(index_t j, A value) { rest[j % kLanes] = value; }
  [[gnu::always_inline]] A total() const {
    Lanes<A> all = lanes + read<A>(rest, LanesAt{0});
    for (int half = Lanes<A>::kParts / 2; half > 0; half /= 2) {
      for (int p = 0; p < half; ++p) all.part[p] += all.part[p + half];
    }
    return impl::sum_of_lanes(all.part[0]);
  }
};

template <class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_lanes(const HostRow&, index_t count,
                                                const Body& body) {
  index_t j = 0;
  for (; j + kLanes <= count; j += kLanes) body(LanesAt{j});
  for (; j < count; ++j) body(j);
}

template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_lanes(const HostRow& team, index_t count,
                                        const Value& value) {
  LaneSums<A> sums;
  for_each_lanes(team, count, [&](auto j) { sums.add(j, value(j)); });
  return sums.total();
}

template <class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION void sum_lanes_of_two(const HostRow& team, index_t count,
                                                  const Value& value, A& total_a,
                                                  A& total_b) {
  LaneSums<A> sums_a, sums_b;
  for_each_lanes(team, count, [&](auto j) {
    decltype(read<A>(static_cast<const A*>(nullptr), j)) a, b;
    value(j, a, b);
    sums_a.add(j, a);
    sums_b.add(j, b);
  });
  total_a = sums_a.total();
  total_b = sums_b.total();
}

#endif

// Where there are no lanes: hosts without vector types.
template <class Team, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_lanes(const Team& team, index_t count,
                                                const Body& body) {
  for_each_column(team, count, body);
}
// The sums of value(j), and of both numbers that value(j, a, b) sets, with the bits of
// sum_columns() and sum_columns_of_two().
template <class A, class Team, class Value>
KOKKOS_FORCEINLINE_FUNCTION A sum_lanes(const Team& team, index_t count,
                                        const Value& value) {
  return sum_columns<A>(team, count, value);
}
template <class A, class Team, class Value>
KOKKOS_FORCEINLINE_FUNCTION void sum_lanes_of_two(const Team& team, index_t count,
                                                  const Value& value, A& total_a,
                                                  A& total_b) {
  sum_columns_of_two<A>(team, count, value, total_a, total_b);
}

template <class A, class F>
KOKKOS_FORCEINLINE_FUNCTION A mapped(A value, const F& f) {
  return f(value);
}

// read() of rows that are gone through in order and lie in no cache.
template <class A, class T, class J>
KOKKOS_FORCEINLINE_FUNCTION auto read_streamed(const T* row, J j) {
  ask_ahead_of(row, j);
  return read<A>(row, j);
}

// What is written at j, as it is read there again.
template <class A, class T, class J, class Value>
KOKKOS_FORCEINLINE_FUNCTION auto written(T* row, J j, const Value& value) {
  write(row, j, value);
  return read<A>(row, j);
}

// Columns of a row that a host keeps in its nearest cache as numbers to count with.
inline constexpr index_t kWideColumns = 2048;

// body(rows...), where a host has widened the rows of h elements before: it pays where
// they are read again and again. Longer ones are handed on as they are.
template <class T, class Body, class... Rows>
KOKKOS_FORCEINLINE_FUNCTION void with_widened(const RowTeam& team, index_t h,
                                              const Body& body, const Rows*... rows) {
  using A = Accumulator<T>;
  if constexpr (!kRowsByTeams && sizeof(T) < sizeof(A)) {
    if (h <= kWideColumns) {
      A wide[sizeof...(Rows)][kWideColumns];
      int next = 0;
      const auto widen = [&](const T* row) -> const A* {
        A* const to = wide[next++];
        for_each_lanes(team, h, [=](auto j) { write(to, j, read<A>(row, j)); });
        return to;
      };
      return [&](auto... widened) { body(widened...); }(widen(rows)...);
    }
  }
  body(rows...);
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_LANES_HPP_

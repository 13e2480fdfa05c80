// kernels/impl/vector_rows.hpp — dot products of few rows with many, on host cores: what
// products of few rows and attention over a cache are made of.
//
// An element is the sum over k of w[k] x[k]. It is summed block by block in the lanes of
// one vector, which are then added in a fixed tree: its bits depend on the length alone,
// and not on how many rows are computed beside it. Rows of w are read once, in the type
// that they have, and widened in registers; those of x were widened before (widen_row).
// Example, bf16: a block is 32 elements; the even ones are the upper halves of 16 words
// shifted up, the odd ones the words without their lower halves, and x has its even
// elements before its odd ones.
#ifndef TRIREME_KERNELS_IMPL_VECTOR_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_VECTOR_ROWS_HPP_

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "base/types.hpp"

namespace trireme::kernels::impl {

inline constexpr int kVectorBytes = 64;  // a compiler makes two of one where it must

// Types by which memory is read may lie anywhere.
template <class A>
struct VectorOf {
  typedef A type __attribute__((vector_size(kVectorBytes)));
  typedef A stored
      __attribute__((vector_size(kVectorBytes), aligned(sizeof(A)), may_alias));
  static constexpr int lanes = kVectorBytes / static_cast<int>(sizeof(A));
};

// A block of elements as vectors of accumulators; place(j): where element j of it goes.
template <class T>
struct Block {
  using V = typename VectorOf<T>::type;
  static constexpr int vectors = 1;
  static constexpr int elements = VectorOf<T>::lanes;
  static constexpr int place(int j) { return j; }
  static void load(const T* from, V* to) {
    *to = *reinterpret_cast<const typename VectorOf<T>::stored*>(from);
  }
};

using Words = VectorOf<std::uint32_t>::type;

template <>
struct Block<bf16> {
  using V = VectorOf<float>::type;
  static constexpr int vectors = 2;
  static constexpr int elements = 32;
  static constexpr int place(int j) { return j % 2 * 16 + j / 2; }
  static void load(const bf16* from, V* to) {
    Words words;
    std::memcpy(&words, from, sizeof(words));
    const Words even = words << 16, odd = words & 0xffff0000u;
    std::memcpy(to, &even, sizeof(even));
    std::memcpy(to + 1, &odd, sizeof(odd));
  }
};

template <>
struct Block<fp16> {
  using V = VectorOf<float>::type;
  static constexpr int vectors = 2;
  static constexpr int elements = 32;
#if defined(__AVX512F__)
  static constexpr int place(int j) {
    return j;
  }
  static void load(const fp16* from, V* to) {
    for (int i = 0; i < vectors; ++i) {
      __m256i halves;
      std::memcpy(&halves, from + 16 * i, sizeof(halves));
      const __m512 wide = _mm512_maskz_cvtph_ps(0xffff, halves);
      std::memcpy(to + i, &wide, sizeof(wide));
    }
  }
#else
  static constexpr int place(int j) {
    return j % 2 * 16 + j / 2;
  }
  static void load(const fp16* from, V* to) {
    Words words;
    std::memcpy(&words, from, sizeof(words));
    widen(words & 0xffffu, to);
    widen(words >> 16, to + 1);
  }
  // Exponent and mantissa in float's places make a number 2^112 times too small, which is
  // exact for subnormal ones, too; infinities and NaN keep the largest exponent.
  static void widen(const Words& half, V* to) {
    Words magnitude = (half & 0x7fffu) << 13;
    const Words is_special = magnitude >= 0x0f800000u;
    V value;
    std::memcpy(&value, &magnitude, sizeof(value));
    value *= 0x1p112f;
    std::memcpy(&magnitude, &value, sizeof(value));
    magnitude |= (is_special & 0x7f800000u) | (half & 0x8000u) << 16;
    std::memcpy(to, &magnitude, sizeof(magnitude));
  }
#endif
};

template <class T>
constexpr index_t whole_blocks(index_t count) {
  constexpr index_t size = Block<T>::elements;
  return (count + size - 1) / size * size;
}

// to (whole_blocks(count)) = factor * from, as dot_rows wants it, zeros behind.
template <class T>
void widen_row(const T* from, index_t count, Accumulator<T> factor, Accumulator<T>* to) {
  constexpr index_t size = Block<T>::elements;
  for (index_t k = 0; k < count; k += size) {
    for (int j = 0; j < size; ++j) {
      const index_t at = k + j;
      to[k + Block<T>::place(j)] =
          at < count ? factor * static_cast<Accumulator<T>>(from[at]) : Accumulator<T>{0};
    }
  }
}

// The sum of a vector's lanes, halves first.
inline float sum_of_lanes(const VectorOf<float>::type& v) {
  const auto half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto quarter = __builtin_shufflevector(half, half, 0, 1, 2, 3) +
                       __builtin_shufflevector(half, half, 4, 5, 6, 7);
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}
inline double sum_of_lanes(const VectorOf<double>::type& v) {
  const auto half = __builtin_shufflevector(v, v, 0, 1, 2, 3) +
                    __builtin_shufflevector(v, v, 4, 5, 6, 7);
  return (half[0] + half[2]) + (half[1] + half[3]);
}

// Adds a block of each of R rows of w times that of M rows of x.
template <class T, int M, int R>
[[gnu::always_inline]] inline void add_block(const T* w, index_t ldw,
                                             const Accumulator<T>* x, index_t ldx,
                                             typename Block<T>::V (&sum)[R][M]) {
  using A = Accumulator<T>;
  using V = typename Block<T>::V;
  constexpr int vectors = Block<T>::vectors, lanes = VectorOf<A>::lanes;
  V left[R][vectors];
  for (int r = 0; r < R; ++r) Block<T>::load(w + r * ldw, left[r]);
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < vectors; ++v) {
      const V right =
          *reinterpret_cast<const typename VectorOf<A>::stored*>(x + m * ldx + v * lanes);
      for (int r = 0; r < R; ++r) sum[r][m] += left[r][v] * right;
    }
  }
}

// y[m * ldy + r] = row r of w . row m of x, for R rows of w, M of x and k
// elements. The rows of w that follow these are asked for in advance.
template <class T, int M, int R, class To>
void dot_block(const T* w, index_t ldw, const Accumulator<T>* x, index_t ldx, index_t k,
               To* y, index_t ldy) {
  constexpr index_t size = Block<T>::elements;
  typename Block<T>::V sum[R][M] = {};
  index_t at = 0;
  for (; at + size <= k; at += size) {
    for (int r = 0; r < R; ++r) __builtin_prefetch(w + (r + R) * ldw + at, 0, 2);
    add_block<T, M, R>(w + at, ldw, x + at, ldx, sum);
  }
  if (at < k) {
    T rest[R][size] = {};
    for (int r = 0; r < R; ++r) {
      for (index_t j = 0; at + j < k; ++j) rest[r][j] = w[r * ldw + at + j];
    }
    add_block<T, M, R>(rest[0], size, x + at, ldx, sum);
  }
  for (int r = 0; r < R; ++r) {
    for (int m = 0; m < M; ++m) {
      y[m * ldy + r] = static_cast<To>(sum_of_lanes(sum[r][m]));
    }
  }
}

inline constexpr int kMostDotRows = 8;  // of x, in one call

// Rows of w that are computed together with so many of x: their sums fit 32 registers,
// and there are enough of them to hide what an addition waits for.
constexpr int rows_together(int of_x) {
  constexpr int rows[kMostDotRows + 1] = {0, 8, 8, 6, 6, 4, 4, 3, 3};
  return rows[of_x];
}

// The same as dot_block for any number of rows of w, M at a time of x.
template <class T, int M, class To>
void dot_rows(index_t rows, const T* w, index_t ldw, const Accumulator<T>* x, index_t ldx,
              index_t k, To* y, index_t ldy) {
  constexpr int together = rows_together(M);
  index_t r = 0;
  for (; r + together <= rows; r += together) {
    dot_block<T, M, together>(w + r * ldw, ldw, x, ldx, k, y + r, ldy);
  }
  for (; r < rows; ++r) dot_block<T, M, 1>(w + r * ldw, ldw, x, ldx, k, y + r, ldy);
}

// dot_rows for `of_x` rows of x, at most kMostDotRows.
template <class T, class To>
void dot_rows(int of_x, index_t rows, const T* w, index_t ldw, const Accumulator<T>* x,
              index_t ldx, index_t k, To* y, index_t ldy) {
  using Function = void (*)(index_t, const T*, index_t, const Accumulator<T>*, index_t,
                            index_t, To*, index_t);
  constexpr Function functions[kMostDotRows] = {
      &dot_rows<T, 1, To>, &dot_rows<T, 2, To>, &dot_rows<T, 3, To>, &dot_rows<T, 4, To>,
      &dot_rows<T, 5, To>, &dot_rows<T, 6, To>, &dot_rows<T, 7, To>, &dot_rows<T, 8, To>};
  functions[of_x - 1](rows, w, ldw, x, ldx, k, y, ldy);
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_VECTOR_ROWS_HPP_

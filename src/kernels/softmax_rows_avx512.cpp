// kernels/softmax_rows_avx512.cpp — impl/softmax_rows.hpp with AVX-512, asked for at run
// time, as the rest of a build may be for less.
//
// A piece of a row, 256 numbers, is widened once into sixteen registers, in which its
// maximum is found and its exponentials are taken; two registers have the 32 lanes of
// impl/rows.hpp's sums. Example: number 37 of a piece is element 5 of the third register,
// and goes to lane 5 of 32, that is to element 5 of the first sum. What is left behind
// the last whole piece goes register by register; the last one has a mask, outside of
// which are minus infinity for the maximum and zero for the sum: they change neither.
#include <immintrin.h>

#include <atomic>
#include <limits>

#include "base/types.hpp"
#include "kernels/impl/softmax_rows.hpp"
#include "kernels/impl/vector_math.hpp"

#define TRIREME_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,fma")))

namespace trireme::kernels::impl {
namespace {

constexpr int kWidth = 16;  // floats in a register
constexpr int kRegisters = static_cast<int>(kSoftmaxPiece) / kWidth;  // of a piece
static_assert(kLanes == 2 * kWidth && kSoftmaxPiece == kRegisters * kWidth);

// The first `left` elements of a register.
__mmask16 first(index_t left) {
  return left >= kWidth ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
}

TRIREME_AVX512 inline __m512 widened(const bf16*, __m256i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
TRIREME_AVX512 inline __m512 widened(const fp16*, __m256i words) {
  return _mm512_cvtph_ps(words);
}
template <class T>
TRIREME_AVX512 inline __m512 loaded(const T* from) {
  return widened(from, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
template <class T>
TRIREME_AVX512 inline __m512 loaded(const T* from, __mmask16 mask) {
  return widened(from, _mm256_maskz_loadu_epi16(mask, from));
}

// bf16's rounding without its look for NaN: one that came from 16 bits keeps zeros in its
// lower half, from which nothing is carried.
TRIREME_AVX512 inline __m256i narrowed(const bf16*, __m512 values) {
  const __m512i word = _mm512_castps_si512(values);
  const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
TRIREME_AVX512 inline __m256i narrowed(const fp16*, __m512 values) {
  return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
}

// vector_exp() of numbers that are not above zero, in the same steps.
TRIREME_AVX512 inline __m512 exp_of(__m512 x) {
  const __m512 round = _mm512_set1_ps(12582912.0f);
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504088896341f), round);
  const __m512 n = _mm512_sub_ps(shifted, round);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 q = _mm512_set1_ps(0x1.6db4eap-10f);
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.123bdep-7f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.55545ep-5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.55548ep-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
  const __m512 p = _mm512_fmadd_ps(_mm512_fmadd_ps(q, r, one), r, one);
  // Not less than the smallest, or NaN, which stays one: the word that is added to it has
  // zeros in its low bits, as NaN from 16 bits has.
  const __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3365f), _CMP_NLT_UQ);
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(
      _mm512_maskz_add_epi32(counts, _mm512_castps_si512(p), exponent));
}

// Maximum and sum so far, and those of a piece, of which the largest is known.
TRIREME_AVX512 inline void raise_largest(RowStatistics<float>& row, __m512 piece) {
  const float piece_max = _mm512_reduce_max_ps(piece);
  if (!(piece_max > row.largest)) return;
  row.sum *= vector_exp(row.largest - piece_max);
  row.largest = piece_max;
}

template <class T>
TRIREME_AVX512 RowStatistics<float> softmax_statistics(const T* in, index_t count,
                                                       const Ahead<T>& ahead) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  RowStatistics<float> row{std::numeric_limits<float>::lowest(), 0.0f};
  index_t begin = 0;
  for (; begin + kSoftmaxPiece <= count; begin += kSoftmaxPiece) {
    ahead.fetch(HostRow{}, begin, kSoftmaxPiece);
    __m512 x[kRegisters];
    __m512 most = lowest;
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      x[i] = loaded(in + begin + i * kWidth);
      most = _mm512_max_ps(x[i], most);  // which passes NaN over
    }
    raise_largest(row, most);
    const __m512 top = _mm512_set1_ps(row.largest);
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; i += 2) {
      even = _mm512_add_ps(even, exp_of(_mm512_sub_ps(x[i], top)));
      odd = _mm512_add_ps(odd, exp_of(_mm512_sub_ps(x[i + 1], top)));
    }
    // Halves are added to halves, as combine_lanes() does.
    row.sum += _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
  }
  if (begin == count) return row;
  ahead.fetch(HostRow{}, begin, count - begin);
  __m512 most = lowest;
  for (index_t j = begin; j < count; j += kWidth) {
    const __mmask16 mask = first(count - j);
    most = _mm512_mask_max_ps(most, mask, loaded(in + j, mask), most);
  }
  raise_largest(row, most);
  const __m512 top = _mm512_set1_ps(row.largest);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (index_t j = begin; j < count; j += kWidth) {
    const __mmask16 mask = first(count - j);
    __m512& sum = sums[(j - begin) / kWidth % 2];
    sum = _mm512_mask_add_ps(sum, mask, sum,
                             exp_of(_mm512_sub_ps(loaded(in + j, mask), top)));
  }
  row.sum += _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
  return row;
}

TRIREME_AVX512 inline __m512 gradient_of(__m512 x, __m512 top, __m512 scale) {
  return _mm512_mul_ps(exp_of(_mm512_sub_ps(x, top)), scale);
}

template <class T>
TRIREME_AVX512 void softmax_gradient(T* in, index_t count, float largest, float factor,
                                     const Ahead<T>& ahead) {
  const __m512 top = _mm512_set1_ps(largest), scale = _mm512_set1_ps(factor);
  index_t begin = 0;
  for (; begin + kSoftmaxPiece <= count; begin += kSoftmaxPiece) {
    ahead.fetch(HostRow{}, begin, kSoftmaxPiece);
#pragma GCC unroll 4
    for (int i = 0; i < kRegisters; ++i) {
      T* const at = in + begin + i * kWidth;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at),
                          narrowed(at, gradient_of(loaded(at), top, scale)));
    }
  }
  if (begin == count) return;
  ahead.fetch(HostRow{}, begin, count - begin);
  for (; begin < count; begin += kWidth) {
    const __mmask16 mask = first(count - begin);
    T* const at = in + begin;
    _mm256_mask_storeu_epi16(at, mask,
                             narrowed(at, gradient_of(loaded(at, mask), top, scale)));
  }
}

std::atomic<bool> are_off{false};

}  // namespace

template <class T>
SoftmaxRows<T> softmax_rows() {
  static const bool has_vectors = __builtin_cpu_supports("avx512f") &&
                                  __builtin_cpu_supports("avx512bw") &&
                                  __builtin_cpu_supports("avx512vl");
  if (!has_vectors || are_off.load()) return {};
  return {&softmax_statistics<T>, &softmax_gradient<T>};
}
template SoftmaxRows<bf16> softmax_rows<bf16>();
template SoftmaxRows<fp16> softmax_rows<fp16>();

void set_softmax_rows(LongVectors vectors) {
  are_off.store(vectors == LongVectors::off);
}

}  // namespace trireme::kernels::impl

// kernels/impl/transpose_words.hpp — 16 x 16 words of 32 bits transposed in registers,
// for those who pack tiles of Intel's matrix registers: a word is two values of bf16.
//
// The function carries its instruction set as an attribute, so that it may be called from
// files that are built for any processor; its callers have at least the same.
#ifndef TRIREME_KERNELS_IMPL_TRANSPOSE_WORDS_HPP_
#define TRIREME_KERNELS_IMPL_TRANSPOSE_WORDS_HPP_

#if defined(__x86_64__)
#include <immintrin.h>

namespace trireme::kernels::impl {

// to[c] (16 words) = column c of from, 16 rows of 16 words; both may be the same.
__attribute__((target("avx512f"))) inline void transpose_words(const __m512i (&from)[16],
                                                               __m512i (&to)[16]) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // b[4 g + j]: quarter q holds column 4 q + j of rows 4 g ... 4 g + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
    const __m512i high23 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
    to[j] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    to[8 + j] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    to[4 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    to[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
}

}  // namespace trireme::kernels::impl

#endif

#endif  // TRIREME_KERNELS_IMPL_TRANSPOSE_WORDS_HPP_

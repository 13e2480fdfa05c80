// kernels/impl/philox_lanes.hpp — several calls of Philox-4x32 at once on the host.
//
// The same words as random::Generator::block, for calls side by side in vector registers
// (g++ 12's own vectoriser finds no 32 x 32 -> 64 bit product): consecutive calls, or the
// same call of several rows. On a GPU a thread calls Generator::block. Salmon et al.,
// SC'11.
#ifndef TRIREME_KERNELS_IMPL_PHILOX_LANES_HPP_
#define TRIREME_KERNELS_IMPL_PHILOX_LANES_HPP_

#include <cstring>

#include "base/random.hpp"

namespace trireme::kernels {

inline constexpr int kPhiloxLanes = 8;  // calls side by side: a group
inline constexpr int kPhiloxWords = 4 * kPhiloxLanes;

// In which order a group's 32-bit words are written.
enum class WordOrder {
  by_call,  // word 4 l + k is word k of call l
  by_word   // of each four calls, word 4 k + t is word k of call t
};

#if !defined(KOKKOS_ENABLE_CUDA) && defined(__GNUC__) && \
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__

namespace detail {

// 64-bit lanes, of which the low halves are the words of as many calls.
#if defined(__AVX512F__)
inline constexpr int kPhiloxVectorLanes = 8;
#else
inline constexpr int kPhiloxVectorLanes = 4;
#endif
typedef std::uint64_t PhiloxVector __attribute__((vector_size(8 * kPhiloxVectorLanes)));
typedef std::uint32_t PhiloxHalves __attribute__((vector_size(4 * kPhiloxVectorLanes)));

inline PhiloxVector low_product(PhiloxVector a, std::uint32_t factor) {
#if (defined(__AVX2__) || defined(__AVX512F__)) && !defined(__clang__)
  typedef int Words __attribute__((vector_size(8 * kPhiloxVectorLanes)));
#if defined(__AVX512F__)
  typedef long long Lanes __attribute__((vector_size(64)));
#endif
  const auto b = reinterpret_cast<Words>(PhiloxVector{} + factor);
#if defined(__AVX512F__)
  return reinterpret_cast<PhiloxVector>(__builtin_ia32_pmuludq512_mask(
      reinterpret_cast<Words>(a), b, Lanes{}, static_cast<unsigned char>(-1)));
#else
  return reinterpret_cast<PhiloxVector>(
      __builtin_ia32_pmuludq256(reinterpret_cast<Words>(a), b));
#endif
#else
  return (a & 0xffffffffu) * (PhiloxVector{} + factor);
#endif
}

// The words of kPhiloxVectorLanes calls, from the vectors of their words 0 to 3.
template <WordOrder order>
inline void store_words(const PhiloxVector (&c)[4], char* to) {
  if constexpr (order == WordOrder::by_word) {
    for (int k = 0; k < 4; ++k) {
      const auto words = __builtin_convertvector(c[k], PhiloxHalves);
      for (int four = 0; four < kPhiloxVectorLanes / 4; ++four) {
        std::memcpy(to + 64 * four + 16 * k,
                    reinterpret_cast<const char*>(&words) + 16 * four, 16);
      }
    }
  } else {
    const PhiloxVector low = (c[0] & 0xffffffffu) | (c[1] << 32);
    const PhiloxVector high = (c[2] & 0xffffffffu) | (c[3] << 32);
#if defined(__AVX512F__)
    const PhiloxVector out[2] = {
        __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11),
        __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15)};
#else
    const PhiloxVector out[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                                 __builtin_shufflevector(low, high, 2, 6, 3, 7)};
#endif
    std::memcpy(to, out, sizeof(out));
  }
}

// The round keys of a generator, one in every lane.
template <int kRounds>
struct PhiloxKeys {
  PhiloxVector key[2 * kRounds];

  explicit PhiloxKeys(const random::Generator& generator) {
    const auto first = generator.key();
    for (int round = 0; round < kRounds; ++round) {
      const auto bumps = static_cast<std::uint32_t>(round);
      key[2 * round] = PhiloxVector{} + (first[0] + bumps * 0x9e3779b9u);
      key[2 * round + 1] = PhiloxVector{} + (first[1] + bumps * 0xbb67ae85u);
    }
  }
};

// All rounds of kVectors vectors of calls. c[u] are the counters of vector u and become
// its words, in the low halves of the lanes; what the upper halves hold is rubbish that
// no product reads.
template <int kRounds, int kVectors>
inline void philox_rounds(const PhiloxKeys<kRounds>& keys,
                          PhiloxVector (&c)[kVectors][4]) {
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round) {
    for (int u = 0; u < kVectors; ++u) {
      const PhiloxVector p0 = low_product(c[u][0], 0xd2511f53u);
      const PhiloxVector p1 = low_product(c[u][2], 0xcd9e8d57u);
      c[u][0] = (p1 >> 32) ^ c[u][1] ^ keys.key[2 * round];
      c[u][1] = p1;
      c[u][2] = (p0 >> 32) ^ c[u][3] ^ keys.key[2 * round + 1];
      c[u][3] = p0;
    }
  }
}

// The counters of a vector of calls.
inline void set_counters(const r123::Philox4x32::ctr_type& base, PhiloxVector calls,
                         PhiloxVector (&c)[4]) {
  c[0] = calls;
  c[1] = PhiloxVector{} + base[1];
  c[2] = (base[2] & 0xffff0000u) | ((calls >> 32) & 0xffffu);
  c[3] = PhiloxVector{} + base[3];
}

}  // namespace detail

// The words of calls [first, first + groups * kPhiloxLanes), in `order` within a group.
// Word is std::uint32_t, or std::uint16_t for the halves of each (low one first).
template <int kRounds, WordOrder order, class Word>
void philox_lanes(const random::Generator& generator, std::uint64_t first, int groups,
                  Word* words) {
  using V = detail::PhiloxVector;
  constexpr int kLanes = detail::kPhiloxVectorLanes;
  constexpr int kVectors = kPhiloxLanes / kLanes;
  const auto base = generator.counter(first);
  const detail::PhiloxKeys<kRounds> keys(generator);
  V lane;
  for (int l = 0; l < kLanes; ++l) lane[l] = static_cast<std::uint64_t>(l);
  auto* to = reinterpret_cast<char*>(words);
  for (int group = 0; group < groups; ++group) {
    V c[kVectors][4];
    for (int u = 0; u < kVectors; ++u) {
      detail::set_counters(base, lane + first + static_cast<std::uint64_t>(kLanes * u),
                           c[u]);
    }
    detail::philox_rounds<kRounds, kVectors>(keys, c);
    for (int u = 0; u < kVectors; ++u) {
      detail::store_words<order>(c[u], to);
      to += 16 * kLanes;
    }
    first += kPhiloxLanes;
  }
}

namespace detail {

// philox_rows of two vectors of rows, of which `first` are the first calls. Where no call
// carries beyond the low half of its counter, the upper half is the same for all, and
// with it two of the first products.
template <int kRounds, bool carries, class ToRow>
inline void philox_row_pair(const r123::Philox4x32::ctr_type& base,
                            const PhiloxKeys<kRounds>& keys,
                            const PhiloxVector (&first)[2], int calls,
                            const ToRow& to_row, int stride, std::uint32_t* words) {
  const std::uint64_t upper = first[0][0] >> 32 & 0xffffu;
  for (int i = 0; i < calls; ++i) {
    PhiloxVector c[2][4];
    for (int u = 0; u < 2; ++u) {
      set_counters(base, first[u] + static_cast<std::uint64_t>(i), c[u]);
      if constexpr (!carries) c[u][2] = PhiloxVector{} + (base[2] | upper);
    }
    philox_rounds<kRounds, 2>(keys, c);
    for (int m = 0; m < 4; ++m) {
      const PhiloxVector pairs = (c[0][m] & 0xffffffffu) | (c[1][m] << 32);
      std::memcpy(words + to_row(i, m) * stride, &pairs, sizeof(pairs));
    }
  }
}

}  // namespace detail

// The words of `calls` consecutive calls of each of `rows` rows, a multiple of
// kPhiloxRowStep: word m of call first_of_row[r] + skip + i goes to
// words[to_row(i, m) * stride + r], which to_row tells. Rows lie side by side, as the
// columns of a transposed tile do.
inline constexpr int kPhiloxRowStep = 16;
template <int kRounds, class ToRow>
void philox_rows(const random::Generator& generator, const std::uint64_t* first_of_row,
                 int rows, std::uint64_t skip, int calls, const ToRow& to_row, int stride,
                 std::uint32_t* words) {
  constexpr int kLanes = detail::kPhiloxVectorLanes;
  const auto base = generator.counter(0);
  const detail::PhiloxKeys<kRounds> keys(generator);
  for (int r = 0; r < rows; r += 2 * kLanes) {
    // Even rows in one vector and odd ones in the other, whose words then interleave.
    detail::PhiloxVector first[2];
    std::uint64_t differing = 0;
    for (int l = 0; l < 2 * kLanes; ++l) {
      const std::uint64_t call = first_of_row[r + l] + skip;
      first[l % 2][l / 2] = call;
      differing |= (call ^ first[0][0]) |
                   ((call + static_cast<std::uint64_t>(calls)) ^ first[0][0]);
    }
    if (differing >> 32 == 0) {
      detail::philox_row_pair<kRounds, false>(base, keys, first, calls, to_row, stride,
                                              words + r);
    } else {
      detail::philox_row_pair<kRounds, true>(base, keys, first, calls, to_row, stride,
                                             words + r);
    }
  }
}

#else

template <int kRounds, WordOrder order, class Word>
void philox_lanes(const random::Generator& generator, std::uint64_t first, int groups,
                  Word* words) {
  constexpr int kParts = 4 / static_cast<int>(sizeof(Word));
  for (int l = 0; l < groups * kPhiloxLanes; ++l) {
    const random::Words block =
        generator.block<kRounds>(first + static_cast<std::uint64_t>(l));
    for (int k = 0; k < 4; ++k) {
      const int at = order == WordOrder::by_call ? 4 * l + k : l / 4 * 16 + 4 * k + l % 4;
      for (int part = 0; part < kParts; ++part) {
        words[kParts * at + part] = static_cast<Word>(
            block.word[k] >> (8 * static_cast<int>(sizeof(Word)) * part));
      }
    }
  }
}

inline constexpr int kPhiloxRowStep = 1;
template <int kRounds, class ToRow>
void philox_rows(const random::Generator& generator, const std::uint64_t* first_of_row,
                 int rows, std::uint64_t skip, int calls, const ToRow& to_row, int stride,
                 std::uint32_t* words) {
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < calls; ++i) {
      const random::Words block = generator.block<kRounds>(first_of_row[r] + skip +
                                                           static_cast<std::uint64_t>(i));
      for (int m = 0; m < 4; ++m) words[to_row(i, m) * stride + r] = block.word[m];
    }
  }
}

#endif

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_PHILOX_LANES_HPP_

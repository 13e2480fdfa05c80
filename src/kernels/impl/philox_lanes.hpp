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

  PhiloxKeys() = default;
  explicit PhiloxKeys(const random::Generator& generator) { set(generator); }
  void set(const random::Generator& generator) {
    const auto first = generator.key();
    for (int round = 0; round < kRounds; ++round) {
      const auto bumps = static_cast<std::uint32_t>(round);
      key[2 * round] = PhiloxVector{} + (first[0] + bumps * 0x9e3779b9u);
      key[2 * round + 1] = PhiloxVector{} + (first[1] + bumps * 0xbb67ae85u);
    }
  }
};

// The rounds from kFirst on of kVectors vectors of calls. c[u] are the counters of vector
// u and become its words, in the low halves of the lanes; what the upper halves hold is
// rubbish that no product reads.
template <int kRounds, int kVectors, int kFirst = 0>
inline void philox_rounds(const PhiloxKeys<kRounds>& keys,
                          PhiloxVector (&c)[kVectors][4]) {
#pragma GCC unroll 10
  for (int round = kFirst; round < kRounds; ++round) {
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

// The words of kRows rows that lie side by side, as the columns of a transposed tile do:
// each begins at a call of its own. They are drawn in steps, one call of kPhiloxRowStep
// rows each, so that a processor can do so beside other work.
inline constexpr int kPhiloxRowStep = 32;
template <int kRounds, int kRows>
class PhiloxRows {
 public:
  // Of each row, `calls` calls from first[row] on at most are drawn.
  void set(const random::Generator& generator, const std::uint64_t (&first)[kRows],
           std::uint64_t calls) {
    base_ = generator.counter(first[0]);
    keys_.set(generator);
    std::uint64_t differing = 0;
    for (int r = 0; r < kRows; ++r) {
      // Of 2 kLanes rows the even ones are in one vector and the odd ones in the next,
      // whose words then interleave.
      first_[r / kSpan * 2 + r % 2][r % kSpan / 2] = first[r];
      differing |= (first[r] ^ first[0]) | ((first[r] + calls) ^ first[0]);
    }
    carries_ = differing >> 32 != 0;
    set_start();
  }

  // Word m, 0 to 3, of call first[r] + call goes to to[m * stride + r - row], for the
  // rows r in [row, row + kPhiloxRowStep).
  void draw(int row, std::uint64_t call, std::uint32_t* to, int stride) const {
    for (int r = row; r < row + kPhiloxRowStep; r += kAtOnce * kLanes) {
      Vector c[kAtOnce][4];
      if (carries_) {
        for (int u = 0; u < kAtOnce; ++u) {
          detail::set_counters(base_, first_[r / kLanes + u] + call, c[u]);
        }
        detail::philox_rounds<kRounds, kAtOnce>(keys_, c);
      } else {
        start(first_ + r / kLanes, call, c);
        detail::philox_rounds<kRounds, kAtOnce, 2>(keys_, c);
      }
      for (int m = 0; m < 4; ++m) {
        for (int u = 0; u < kAtOnce; u += 2) {
          const Vector pairs = (c[u][m] & 0xffffffffu) | (c[u + 1][m] << 32);
          std::memcpy(to + m * stride + r - row + u * kLanes, &pairs, sizeof(pairs));
        }
      }
    }
  }

 private:
  using Vector = detail::PhiloxVector;
  static constexpr int kLanes = detail::kPhiloxVectorLanes, kSpan = 2 * kLanes;
  // Vectors: a product takes five times as long as a processor needs to begin one.
  static constexpr int kAtOnce = 4;
  static_assert(kRounds > 2 && kRows % kPhiloxRowStep == 0 &&
                kPhiloxRowStep % (kAtOnce * kLanes) == 0);

  // Where no call carries beyond the low half of its counter, the other words of the
  // counters are the same for all, and with them two of the products of two rounds.
  void set_start() {
    const Vector one = detail::low_product(Vector{} + base_[2], 0xcd9e8d57u);
    const Vector zero =
        detail::low_product((one >> 32) ^ base_[1] ^ keys_.key[0], 0xd2511f53u);
    start_[0] = keys_.key[1] ^ base_[3];
    start_[1] = keys_.key[2] ^ one;
    start_[2] = keys_.key[3] ^ (zero >> 32);
    start_[3] = zero;
  }
  // The first two rounds.
  void start(const Vector* rows, std::uint64_t call, Vector (&c)[kAtOnce][4]) const {
    for (int u = 0; u < kAtOnce; ++u) {
      const Vector first = detail::low_product(rows[u] + call, 0xd2511f53u);
      const Vector second = detail::low_product((first >> 32) ^ start_[0], 0xcd9e8d57u);
      c[u][0] = (second >> 32) ^ start_[1];
      c[u][1] = second;
      c[u][2] = first ^ start_[2];
      c[u][3] = start_[3];
    }
  }

  r123::Philox4x32::ctr_type base_;
  detail::PhiloxKeys<kRounds> keys_;
  Vector first_[kRows / kLanes];
  Vector start_[4];
  bool carries_ = false;
};

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

inline constexpr int kPhiloxRowStep = 32;
template <int kRounds, int kRows>
class PhiloxRows {
 public:
  void set(const random::Generator& generator, const std::uint64_t (&first)[kRows],
           std::uint64_t) {
    generator_ = generator;
    for (int r = 0; r < kRows; ++r) first_[r] = first[r];
  }
  void draw(int row, std::uint64_t call, std::uint32_t* to, int stride) const {
    for (int r = row; r < row + kPhiloxRowStep; ++r) {
      const random::Words block = generator_.block<kRounds>(first_[r] + call);
      for (int m = 0; m < 4; ++m) to[m * stride + r - row] = block.word[m];
    }
  }

 private:
  random::Generator generator_;
  std::uint64_t first_[kRows];
};

#endif

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_PHILOX_LANES_HPP_

// kernels/impl/decode_tiles.hpp — what the teams of decode_attention_teams.cpp leave of
// each text, head and tile of keys, and how it is combined: by a launch of its own, or by
// the product that follows attention (decode_linear.cpp), to the same bits.
#ifndef TRIREME_KERNELS_IMPL_DECODE_TILES_HPP_
#define TRIREME_KERNELS_IMPL_DECODE_TILES_HPP_

#include <cstdint>

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/decode_attention.hpp"
#include "kernels/impl/decode_attention.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/impl/vector_math.hpp"

namespace trireme::kernels::impl {

// What divides a kernel's small numbers: a thread of a GPU takes 35 instructions for a
// division of whole numbers, and two for this one, where the product of both is less than
// 2^32.
struct Divisor {
  unsigned by = 1, most = 0;
  std::uint32_t per_unit = 0;  // 2^32 / by, rounded up

  Divisor() = default;
  explicit Divisor(int divisor) : by(static_cast<unsigned>(divisor)) {
    TRIREME_REQUIRE(divisor > 0, "a division by {}", divisor);
    if (by == 1) return;
    most = 0xffffffffu / by;
    per_unit = static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + by - 1) / by);
  }
  KOKKOS_FORCEINLINE_FUNCTION int quotient(int number) const {
    const auto n = static_cast<unsigned>(number);
    if (n <= most) return static_cast<int>(std::uint64_t{n} * per_unit >> 32);
    return by == 1 ? number : static_cast<int>(n / by);
  }
};

// Of each tile its largest score M, the sum S of exp(score - M), and the values' sum
// weighted with the same (d). The latter come first, so that they lie in whole pieces
// where a head has them.
template <class A>
struct TeamTiles {
  A* outputs = nullptr;  // (texts, heads, tiles, d)
  A* weights = nullptr;  // (texts, heads, tiles, 2): M, S
  int heads = 0, tiles = 0, d = 0;

  TeamTiles() = default;
  template <class Scratch>
  TeamTiles(const CachedTexts& texts, const CachedHeads& of, const Scratch& scratch)
      : outputs(scratch.data()),
        heads(static_cast<int>(of.heads)),
        tiles(static_cast<int>(tiles_of(texts.longest, kDecodeTile))),
        d(static_cast<int>(of.head_dim)) {
    // A pass on shapes has no memory to point into.
    const index_t count = texts.count * heads * tiles * d;
    weights = outputs == nullptr ? nullptr : outputs + count;
  }
  KOKKOS_FORCEINLINE_FUNCTION index_t at(int text, int head, int tile) const {
    return (static_cast<index_t>(text) * heads + head) * tiles + tile;
  }
  KOKKOS_FORCEINLINE_FUNCTION A* weight(int text, int head, int tile) const {
    return weights + 2 * at(text, head, tile);
  }
  KOKKOS_FORCEINLINE_FUNCTION A* output(int text, int head, int tile) const {
    return outputs + at(text, head, tile) * d;
  }
};

// The elements from `from` on, kCount of them; a single one, or whole pieces.
template <int kCount, class A>
KOKKOS_FORCEINLINE_FUNCTION void load_columns(const A* from, A (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = from[0];
  } else {
    constexpr int kElements = Piece<A>::kElements;
    for (int p = 0; p < kCount / kElements; ++p) {
      const Piece<A> piece = load_piece<true>(from + p * kElements, kElements);
      for (int e = 0; e < kElements; ++e) to[p * kElements + e] = piece.element[e];
    }
  }
}

// kColumns columns of a head's output, from `column` on, of `length` keys:
//   o = sum exp(M_t - M) o_t / sum exp(M_t - M) S_t,
// some tiles at a time, so that a thread has several loads under way, with M the largest
// M_t so far. Zero where there are no keys. For a kernel over T: see exp_for().
template <class T, int kColumns, class A>
KOKKOS_FORCEINLINE_FUNCTION void combine_tiles(const TeamTiles<A>& of, int text, int head,
                                               int column, index_t length,
                                               A (&sum)[kColumns]) {
  constexpr int kTogether = 4;
  constexpr auto kKeys = static_cast<int>(kDecodeTile);
  const int tiles = (static_cast<int>(length) + kKeys - 1) / kKeys;
  const A* const weights = of.weight(text, head, 0);
  const A* const outputs = of.output(text, head, 0) + column;
  A largest = -Kokkos::Experimental::infinity_v<A>, total{0};
  for (A& one : sum) one = A{0};
  for (int first = 0; first < tiles; first += kTogether) {
    A most[kTogether], share[kTogether] = {}, part[kTogether][kColumns] = {};
    A now = largest;
    for (int i = 0; i < kTogether; ++i) {
      const int tile = first + i;
      most[i] = -Kokkos::Experimental::infinity_v<A>;
      if (tile >= tiles) continue;
      most[i] = weights[2 * tile];
      share[i] = weights[2 * tile + 1];
      load_columns(outputs + static_cast<index_t>(tile) * of.d, part[i]);
    }
    for (int i = 0; i < kTogether; ++i) now = most[i] > now ? most[i] : now;
    const A kept = exp_for<T>(largest - now);
    total *= kept;
    for (A& one : sum) one *= kept;
    for (int i = 0; i < kTogether; ++i) {
      const A weight = exp_for<T>(most[i] - now);
      total = multiply_add(weight, share[i], total);
      for (int c = 0; c < kColumns; ++c) {
        sum[c] = multiply_add(weight, part[i][c], sum[c]);
      }
    }
    largest = now;
  }
  if (tiles == 0) return;
  const A scale = A{1} / total;
  for (A& one : sum) one *= scale;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_DECODE_TILES_HPP_

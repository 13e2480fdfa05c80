// kernels/impl/decode_attention.hpp — the ways of decode_attention(): that of a host and
// that of a GPU, and what they share.
#ifndef TRIREME_KERNELS_IMPL_DECODE_ATTENTION_HPP_
#define TRIREME_KERNELS_IMPL_DECODE_ATTENTION_HPP_

#include "base/types.hpp"
#include "kernels/decode_attention.hpp"

namespace trireme::kernels::impl {

inline constexpr index_t kDecodeTile = 64;  // keys

// What keys add to their scores by their distance from the newest one, of each head.
template <class A>
struct DistanceBias {
  const A* data = nullptr;
  index_t distances = 0;  // of a head

  DistanceBias() = default;
  explicit DistanceBias(const View2<const A>& bias)
      : data(bias.data()), distances(static_cast<index_t>(bias.extent(1))) {}
  KOKKOS_FORCEINLINE_FUNCTION bool is_there() const { return data != nullptr; }
  KOKKOS_FORCEINLINE_FUNCTION A of(index_t head, index_t distance) const {
    return data[head * distances + distance];
  }
};

// One product over all keys is 2 count a longest d FLOPs, and there are two; keys and
// values of all texts are read once, and the bias, where there is one.
template <class T>
Cost decode_attention_cost(const CachedTexts& texts, const CachedHeads& heads,
                           const View2<const Accumulator<T>>& bias) {
  const index_t keys = texts.count * texts.longest;
  const index_t queries = texts.count * heads.heads;
  const index_t elements =
      2 * heads.head_dim * (keys * heads.kv_heads + queries);  // k and v; q and o
  return {.flops = 4.0 * static_cast<double>(keys * heads.heads * heads.head_dim),
          .bytes = elements * static_cast<index_t>(sizeof(T)) + bytes_of(bias)};
}

// Whether a step's layers are done by teams throughout (decode_linear.hpp), as a GPU's.
bool decodes_by_teams();

// The way that the build has chosen: a host's in decode_attention_host.cpp, a GPU's in
// decode_attention_cuda.cpp.
template <class T>
void decode_attention_here(const Exec& exec, const CachedTexts& texts,
                           const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                           View2<const T> v, View1<Accumulator<T>> scratch, View2<T> o,
                           View2<const Accumulator<T>> bias);

// The tiles alone: their results are left in scratch (impl/decode_tiles.hpp).
template <class T>
void decode_tiles_by_teams(const Exec& exec, const CachedTexts& texts,
                           const CachedHeads& heads, View2<const T> qkv, View2<const T> k,
                           View2<const T> v, View1<Accumulator<T>> scratch,
                           View2<const Accumulator<T>> bias = {});

// By teams, for heads of any size: the way of a GPU. A host can take it, too.
template <class T>
void decode_attention_by_teams(const Exec& exec, const CachedTexts& texts,
                               const CachedHeads& heads, View2<const T> qkv,
                               View2<const T> k, View2<const T> v,
                               View1<Accumulator<T>> scratch, View2<T> o,
                               View2<const Accumulator<T>> bias = {});

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_DECODE_ATTENTION_HPP_

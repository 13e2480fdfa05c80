// kernels/impl/attention_bias.hpp — where attention's backward pass leaves the gradient
// of a bias by distance before it is summed up.
//
// Of a tile of scores' gradients the sums over the diagonals are what its distances get.
// Each tile of queries of a head of a sample has a window of such sums, over all tiles of
// keys: whoever computes the tile of queries is the only one to write there, and the
// windows are added in one order afterwards, so that the bits depend on no number of
// threads. Example: with tiles of 64 and 100 keys a window has 128 + 64 sums. On tensor
// cores it is each tile of keys that has one (kernels/cuda/attention.hpp).
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_BIAS_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_BIAS_HPP_

#include "base/types.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels::impl {

// Of each head of a sample so many windows, one behind the other: sum i of window w is of
// what lies at i - shift - w * step of the bias, of those distances that there are.
struct BiasSums {
  index_t windows, length, shift, step;
};

// Of tiles of `tile` queries, and keys. Query i of a tile and key j of the tile of keys
// that begins at k_begin have the sum `tile - 1 + i - j` from diagonals(k_begin) on.
struct BiasWindows {
  index_t tile, query_tiles, keys;  // keys: of whole tiles

  KOKKOS_INLINE_FUNCTION BiasWindows(const AttentionDesc& desc, index_t tile_rows)
      : tile(tile_rows),
        query_tiles((desc.q_length + tile_rows - 1) / tile_rows),
        keys((desc.kv_length + tile_rows - 1) / tile_rows * tile_rows) {}

  KOKKOS_INLINE_FUNCTION index_t length() const { return keys + tile; }
  // In all.
  KOKKOS_INLINE_FUNCTION index_t elements(const AttentionDesc& desc) const {
    return desc.has_bias ? desc.batch * desc.heads * query_tiles * length() : 0;
  }
  // Of a head, query_tiles windows.
  KOKKOS_INLINE_FUNCTION index_t begin(const AttentionDesc& desc, index_t sample,
                                       index_t head) const {
    return (sample * desc.heads + head) * query_tiles * length();
  }
  KOKKOS_INLINE_FUNCTION index_t begin(const AttentionDesc& desc, index_t sample,
                                       index_t head, index_t query_tile) const {
    return begin(desc, sample, head) + query_tile * length();
  }
  KOKKOS_INLINE_FUNCTION index_t diagonals(index_t k_begin) const {
    return keys - tile - k_begin;
  }
  BiasSums sums(const AttentionDesc& desc) const {
    return {query_tiles, length(), keys - desc.kv_length, -tile};
  }
};

// Distances that queries and keys have.
KOKKOS_INLINE_FUNCTION index_t distances(const AttentionDesc& desc) {
  return desc.q_length + desc.kv_length - 1;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_BIAS_HPP_

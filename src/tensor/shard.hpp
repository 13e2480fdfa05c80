// tensor/shard.hpp — how one rank's part of a parameter lies in the global, logical
// tensor.
//
// A parameter is split over the tensor group along one dimension at most. A shard is a
// list of segments along it: three for QKV, stored [q; k; v] by whole heads; one, shorter
// than the local extent, for a vocabulary whose rows are padded.
//
// Example: 300 words over two ranks, in multiples of 128. Each has 150 of them and 106
// rows of padding behind them: local row 3 of rank 1 is global row 153, local row 150
// none.
#ifndef TRIREME_TENSOR_SHARD_HPP_
#define TRIREME_TENSOR_SHARD_HPP_

#include <vector>

#include "base/shape.hpp"

namespace trireme {

// Rows (or columns) [global_begin, +extent) of the global tensor are
// [local_begin, +extent) of the local one.
struct Segment {
  index_t global_begin = 0;
  index_t local_begin = 0;
  index_t extent = 0;
};

struct ShardSpec {
  static constexpr int kReplicated = -1;

  Shape global_shape;
  Shape local_shape;
  int dimension = kReplicated;    // the split one, or kReplicated
  std::vector<Segment> segments;  // empty when replicated

  bool is_replicated() const { return dimension == kReplicated; }
  // Elements of the flat local array before its rows of padding, which are the last.
  index_t real_elements() const;
};

// The whole tensor on every rank of the tensor group.
ShardSpec replicated(Shape global_shape);
// What each of `parts` has of an extent; the last ones may have less.
inline index_t largest_share(index_t extent, index_t parts) {
  return (extent + parts - 1) / parts;
}
// An even split of `dimension` in `parts`; this rank holds part `rank`. An extent that
// `parts` do not divide is an error, unless there is a `multiple`: the last ranks then
// have less of it, and every rank pads what it has, the same, to that multiple. Only rows
// can be padded.
ShardSpec split(Shape global_shape, int dimension, int parts, int rank,
                index_t multiple = 0);
// Dimension 0 is a stack of blocks of the given extents, each split evenly: QKV has
// {heads * d, kv_heads * d, kv_heads * d}.
ShardSpec split_blocks(Shape global_shape, const std::vector<index_t>& block_extents,
                       int parts, int rank);

}  // namespace trireme

#endif  // TRIREME_TENSOR_SHARD_HPP_

// ckpt/region.hpp — rectangles of global tensors: what checkpoints are cut into.
//
// A tensor is seen as rows x columns (a vector is one column; dimensions beyond the
// second belong to the columns). A rank's part of it, given by a ShardSpec, is a list of
// Regions: three for QKV, one shorter than the local array for a padded vocabulary, three
// for a flat range that begins and ends inside a row (sharded optimizer state).
//
// Example: rank 1 of 2 holds columns 2 and 3 of a (6, 4) matrix, as a local (6, 2) array.
// Elements [3, 9) of that array are three regions: row 1, column 3; rows 2 and 3, columns
// 2 and 3; row 4, column 2. Their local offsets are 3, 4 and 8.
#ifndef TRIREME_CKPT_REGION_HPP_
#define TRIREME_CKPT_REGION_HPP_

#include <optional>
#include <vector>

#include "base/types.hpp"
#include "tensor/shard.hpp"

namespace trireme::ckpt {

// How much of the host's memory regions go through between devices and files.
inline constexpr std::size_t kStagingBytes = std::size_t{16} << 20;

// Rows [row, +rows), columns [column, +columns) of a global tensor.
struct Rectangle {
  index_t row = 0;
  index_t column = 0;
  index_t rows = 0;
  index_t columns = 0;

  index_t elements() const { return rows * columns; }
  bool operator==(const Rectangle&) const = default;
};

// A rectangle and where it lies in a local array.
struct Region {
  Rectangle global;
  index_t local_offset = 0;  // of its first element
  index_t local_stride = 0;  // elements from row to row

  bool operator==(const Region&) const = default;
};

// The whole tensor; throws for scalars.
Rectangle whole(const Shape& shape);
// What both cover; none where that is nothing.
std::optional<Rectangle> intersection(const Rectangle& a, const Rectangle& b);
// A rectangle as start and extent in the tensor's own dimensions.
Shape start_of(const Rectangle& rectangle, const Shape& shape);
Shape extent_of(const Rectangle& rectangle, const Shape& shape);
// The rectangle of a start and an extent, which may be any numbers; none where they are
// no rectangle inside the tensor, of one element at least.
std::optional<Rectangle> rectangle_of(const Shape& start, const Shape& extent,
                                      const Shape& shape);

// The regions of a rank's whole part; padding is in none.
std::vector<Region> regions_of(const ShardSpec& shard);
// The regions of the elements [begin, end) of a part's flat local array.
std::vector<Region> regions_of(const ShardSpec& shard, index_t begin, index_t end);
// An even share, by rows, for one of several ranks that hold the same part.
std::vector<Region> share_of(const std::vector<Region>& regions, int part, int parts);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_REGION_HPP_

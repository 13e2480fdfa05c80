// ckpt/region.cpp — cutting shards into rectangles; see region.hpp.
#include "ckpt/region.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::ckpt {

Rectangle whole(const Shape& shape) {
  TRIREME_REQUIRE(!shape.empty(), "a checkpoint holds no scalar tensors; use shape (1)");
  return {0, 0, shape[0], element_count(Shape(shape.begin() + 1, shape.end()))};
}

std::optional<Rectangle> intersection(const Rectangle& a, const Rectangle& b) {
  const index_t row = std::max(a.row, b.row);
  const index_t column = std::max(a.column, b.column);
  const index_t rows = std::min(a.row + a.rows, b.row + b.rows) - row;
  const index_t columns = std::min(a.column + a.columns, b.column + b.columns) - column;
  if (rows <= 0 || columns <= 0) return {};
  return Rectangle{row, column, rows, columns};
}

Shape start_of(const Rectangle& rectangle, const Shape& shape) {
  Shape start(shape.size(), 0);
  start[0] = rectangle.row;
  if (shape.size() == 2) start[1] = rectangle.column;
  return start;
}

Shape extent_of(const Rectangle& rectangle, const Shape& shape) {
  Shape extent = shape;
  extent[0] = rectangle.rows;
  if (shape.size() == 2) extent[1] = rectangle.columns;
  TRIREME_REQUIRE(shape.size() <= 2 || rectangle.columns == whole(shape).columns,
                  "tensors of {} are cut along the first only",
                  format_plural(shape.size(), "dimension"));
  return extent;
}

std::optional<Rectangle> rectangle_of(const Shape& start, const Shape& extent,
                                      const Shape& shape) {
  if (shape.empty() || start.size() != shape.size() || extent.size() != shape.size()) {
    return {};
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (extent[i] < 1 || !is_range_within(start[i], extent[i], shape[i])) return {};
    // A matrix may be cut along both of its dimensions, any other tensor along the first
    // alone.
    const bool may_be_cut = i == 0 || (i == 1 && shape.size() == 2);
    if (!may_be_cut && extent[i] != shape[i]) return {};
  }
  Rectangle rectangle = whole(extent);
  rectangle.row = start[0];
  if (start.size() == 2) rectangle.column = start[1];
  return rectangle;
}

std::vector<Region> regions_of(const ShardSpec& shard) {
  return regions_of(shard, 0, element_count(shard.local_shape));
}

std::vector<Region> regions_of(const ShardSpec& shard, index_t begin, index_t end) {
  const Rectangle local = whole(shard.local_shape);
  TRIREME_REQUIRE(0 <= begin && begin <= end && end <= local.elements(),
                  "elements {} to {} of a local array of {}", begin, end,
                  local.elements());
  TRIREME_REQUIRE(
      shard.dimension <= 1 && (shard.dimension < 1 || shard.local_shape.size() == 2),
      "{} is split along dimension {}; checkpoints cut rows or columns",
      to_string(shard.global_shape), shard.dimension);
  // The flat range becomes rectangles of local rows: the rest of a first row, whole rows,
  // and the start of a last one.
  std::vector<Rectangle> pieces;
  const index_t width = local.columns;
  while (begin < end) {
    const index_t row = begin / width;
    const index_t column = begin % width;
    const bool whole_rows = column == 0 && end - begin >= width;
    const Rectangle piece =
        whole_rows ? Rectangle{row, 0, (end - begin) / width, width}
                   : Rectangle{row, column, 1, std::min(width - column, end - begin)};
    pieces.push_back(piece);
    begin += piece.elements();
  }
  const bool by_column = shard.dimension == 1;
  std::vector<Segment> segments = shard.segments;
  if (shard.is_replicated()) segments = {{0, 0, local.rows}};
  std::vector<Region> regions;
  for (const Segment& segment : segments) {
    const Rectangle place =
        by_column ? Rectangle{0, segment.local_begin, local.rows, segment.extent}
                  : Rectangle{segment.local_begin, 0, segment.extent, width};
    const index_t shift = segment.global_begin - segment.local_begin;
    for (const Rectangle& piece : pieces) {
      const auto part = intersection(piece, place);
      if (!part) continue;
      Region region{*part, part->row * width + part->column, width};
      (by_column ? region.global.column : region.global.row) += shift;
      regions.push_back(region);
    }
  }
  return regions;
}

std::vector<Region> share_of(const std::vector<Region>& regions, int part, int parts) {
  std::vector<Region> shares;
  for (const Region& region : regions) {
    const index_t begin = region.global.rows * part / parts;
    const index_t end = region.global.rows * (part + 1) / parts;
    if (begin == end) continue;
    Region share = region;
    share.global.row += begin;
    share.global.rows = end - begin;
    share.local_offset += begin * region.local_stride;
    shares.push_back(share);
  }
  return shares;
}

}  // namespace trireme::ckpt

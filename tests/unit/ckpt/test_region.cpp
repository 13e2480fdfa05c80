// Regions: that every element of a shard is in one region, at the right place, for whole
// shards, flat ranges and shares.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/error.hpp"
#include "ckpt/region.hpp"

namespace trireme {
namespace {

using ckpt::Rectangle;
using ckpt::Region;

// Local element -> global (row, column), straight from the definition of ShardSpec.
std::map<index_t, std::pair<index_t, index_t>> by_definition(const ShardSpec& shard,
                                                             index_t begin, index_t end) {
  const index_t width = ckpt::whole(shard.local_shape).columns;
  std::map<index_t, std::pair<index_t, index_t>> places;
  for (index_t i = begin; i < end; ++i) {
    index_t row = i / width;
    index_t column = i % width;
    bool real = shard.is_replicated();
    index_t& cut = shard.dimension == 1 ? column : row;
    for (const Segment& segment : shard.segments) {
      if (cut >= segment.local_begin && cut < segment.local_begin + segment.extent) {
        cut += segment.global_begin - segment.local_begin;
        real = true;
        break;
      }
    }
    if (real) places[i] = {row, column};
  }
  return places;
}

std::map<index_t, std::pair<index_t, index_t>> by_regions(
    const std::vector<Region>& regions) {
  std::map<index_t, std::pair<index_t, index_t>> places;
  for (const Region& region : regions) {
    for (index_t r = 0; r < region.global.rows; ++r) {
      for (index_t c = 0; c < region.global.columns; ++c) {
        const bool is_new =
            places
                .emplace(region.local_offset + r * region.local_stride + c,
                         std::pair{region.global.row + r, region.global.column + c})
                .second;
        EXPECT_TRUE(is_new);
      }
    }
  }
  return places;
}

std::vector<ShardSpec> some_shards() {
  std::vector<ShardSpec> shards = {replicated({7}), replicated({5, 3}),
                                   replicated({2, 3, 4})};
  for (int rank = 0; rank < 3; ++rank) {
    shards.push_back(split({7, 5}, 0, 3, rank, 2));
    shards.push_back(split({4, 9}, 1, 3, rank));
    shards.push_back(split_blocks({18, 2}, {12, 3, 3}, 3, rank));
    shards.push_back(split_blocks({9}, {3, 3, 3}, 3, rank));
  }
  return shards;
}

TEST(Region, WholeShards) {
  for (const ShardSpec& shard : some_shards()) {
    EXPECT_EQ(by_regions(ckpt::regions_of(shard)),
              by_definition(shard, 0, element_count(shard.local_shape)))
        << to_string(shard.global_shape);
  }
}

TEST(Region, EveryFlatRange) {
  for (const ShardSpec& shard : some_shards()) {
    const index_t count = element_count(shard.local_shape);
    for (index_t begin = 0; begin <= count; ++begin) {
      for (index_t end = begin; end <= count; ++end) {
        const auto regions = ckpt::regions_of(shard, begin, end);
        EXPECT_EQ(by_regions(regions), by_definition(shard, begin, end));
        EXPECT_LE(regions.size(), 3 * std::max<std::size_t>(1, shard.segments.size()));
      }
    }
  }
}

TEST(Region, SharesAreDisjointAndComplete) {
  for (const ShardSpec& shard : some_shards()) {
    for (const int parts : {1, 2, 3, 5}) {
      std::vector<Region> all;
      for (int part = 0; part < parts; ++part) {
        for (const Region& share : ckpt::share_of(ckpt::regions_of(shard), part, parts)) {
          all.push_back(share);
        }
      }
      EXPECT_EQ(by_regions(all),
                by_definition(shard, 0, element_count(shard.local_shape)));
    }
  }
}

TEST(Region, StartAndExtent) {
  const Rectangle rectangle{3, 2, 4, 5};
  EXPECT_EQ(ckpt::start_of(rectangle, {10, 10}), (Shape{3, 2}));
  EXPECT_EQ(ckpt::extent_of(rectangle, {10, 10}), (Shape{4, 5}));
  EXPECT_EQ(ckpt::rectangle_of({3, 2}, {4, 5}, {9, 7}), rectangle);
  EXPECT_EQ(ckpt::rectangle_of({3, 0, 0}, {4, 2, 6}, {9, 2, 6}),
            (Rectangle{3, 0, 4, 12}));
  // Anything may be read from a file.
  constexpr index_t kMost = std::numeric_limits<index_t>::max();
  for (const auto& [start, extent] :
       std::vector<std::pair<Shape, Shape>>{{{3, 2}, {4, 6}},
                                            {{-1, 2}, {4, 5}},
                                            {{3, 2}, {0, 5}},
                                            {{3, 2}, {-4, 5}},
                                            {{3}, {4}},
                                            {{}, {}},
                                            {{3, 2}, {4, 5, 1}},
                                            {{kMost, 0}, {1, 1}},
                                            {{1, 0}, {kMost, 7}},
                                            {{0, 1}, {1, kMost}}}) {
    EXPECT_FALSE(ckpt::rectangle_of(start, extent, {9, 7}).has_value())
        << to_string(start) << to_string(extent);
  }
  EXPECT_FALSE(ckpt::rectangle_of({0, 1, 0}, {9, 1, 6}, {9, 2, 6}).has_value());
  EXPECT_THROW(ckpt::extent_of(rectangle, {10, 5, 2}), Error);
  EXPECT_THROW(ckpt::whole({}), Error);
}

TEST(Region, RefusesWhatItCannotCut) {
  EXPECT_THROW(ckpt::regions_of(split({2, 4, 6}, 2, 2, 0)), Error);
  EXPECT_THROW(ckpt::regions_of(replicated({4}), 0, 5), Error);
}

}  // namespace
}  // namespace trireme

// Shards: whatever the degree, the ranks' parts together are the whole tensor, each
// element once; what does not divide is padded where that was asked for and refused where
// not.
#include "tensor/shard.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/error.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// How often each index along the split dimension of the global tensor is held, over
// ranks; checks on the way that a rank's segments do not overlap and lie inside its local
// extent.
template <class Make>
std::vector<int> held(index_t global_extent, int parts, const Make& make) {
  std::vector<int> count(static_cast<std::size_t>(global_extent));
  for (int rank = 0; rank < parts; ++rank) {
    const ShardSpec spec = make(rank);
    const index_t local = spec.local_shape.at(static_cast<std::size_t>(spec.dimension));
    std::vector<int> local_count(static_cast<std::size_t>(local));
    for (const Segment& segment : spec.segments) {
      EXPECT_GT(segment.extent, 0);
      for (index_t i = 0; i < segment.extent; ++i) {
        ++count.at(static_cast<std::size_t>(segment.global_begin + i));
        ++local_count.at(static_cast<std::size_t>(segment.local_begin + i));
      }
    }
    EXPECT_THAT(local_count, ::testing::Each(::testing::Le(1)));
  }
  return count;
}

TEST(ShardReplicated, IsTheWhole) {
  const ShardSpec spec = replicated({5, 3});
  EXPECT_TRUE(spec.is_replicated());
  EXPECT_EQ(spec.global_shape, (Shape{5, 3}));
  EXPECT_EQ(spec.local_shape, (Shape{5, 3}));
  EXPECT_TRUE(spec.segments.empty());
}

// Rows that are padded to a multiple.
void expect_parts_tile(index_t multiple) {
  for (const index_t extent : {1, 2, 7, 12, 211, 1009}) {
    for (int parts = 1; parts <= 9; ++parts) {
      SCOPED_TRACE(::testing::Message() << extent << " in " << parts);
      const Shape global{extent, 6};
      const auto make = [&](int rank) { return split(global, 0, parts, rank, multiple); };
      EXPECT_THAT(held(extent, parts, make), ::testing::Each(1));
      for (int rank = 0; rank < parts; ++rank) {
        const ShardSpec spec = make(rank);
        EXPECT_FALSE(spec.is_replicated());
        EXPECT_EQ(spec.global_shape, global);
        // Every rank's part has the same shape: all-gathers of equal blocks.
        Shape local = global;
        const index_t share = (extent + parts - 1) / parts;
        local[0] = (share + multiple - 1) / multiple * multiple;
        EXPECT_EQ(spec.local_shape, local);
        // The share of real rows does not depend on what they are padded to.
        const index_t real = std::clamp<index_t>(extent - share * rank, 0, share);
        EXPECT_EQ(spec.real_elements(), 6 * real);
        // Unpadded tensors need no permission to pad.
        if (extent % parts == 0 && multiple == 1) {
          EXPECT_EQ(split(global, 0, parts, rank).local_shape, local);
        }
      }
    }
  }
}

TEST(ShardSplit, PartsTileTheTensor) {
  for (const index_t multiple : {1, 4, 128}) expect_parts_tile(multiple);
}

// Columns are not padded: they are split where the ranks divide them.
TEST(ShardSplit, ColumnsTileTheTensor) {
  for (const index_t columns : {1, 2, 12, 1008}) {
    for (int parts = 1; parts <= 9; ++parts) {
      if (columns % parts != 0) continue;
      SCOPED_TRACE(::testing::Message() << columns << " in " << parts);
      const auto make = [&](int rank) { return split({6, columns}, 1, parts, rank); };
      EXPECT_THAT(held(columns, parts, make), ::testing::Each(1));
      for (int rank = 0; rank < parts; ++rank) {
        EXPECT_EQ(make(rank).local_shape, (Shape{6, columns / parts}));
        EXPECT_EQ(make(rank).real_elements(), 6 * columns / parts);
      }
    }
  }
}

// GPT-2's vocabulary over eight ranks: all are padded, and the last is short as well.
TEST(ShardSplit, PaddedVocabulary) {
  const ShardSpec alone = split({50257, 768}, 0, 1, 0, 128);
  EXPECT_EQ(alone.local_shape, (Shape{50304, 768}));
  EXPECT_EQ(alone.real_elements(), 50257 * 768);
  const ShardSpec first = split({50257, 768}, 0, 8, 0, 128);
  EXPECT_EQ(first.local_shape, (Shape{6400, 768}));
  ASSERT_EQ(first.segments.size(), 1u);
  EXPECT_EQ(first.segments[0].extent, 6283);
  EXPECT_EQ(first.real_elements(), 6283 * 768);
  const ShardSpec last = split({50257, 768}, 0, 8, 7, 128);
  EXPECT_EQ(last.local_shape, (Shape{6400, 768}));
  ASSERT_EQ(last.segments.size(), 1u);
  EXPECT_EQ(last.segments[0].global_begin, 7 * 6283);
  EXPECT_EQ(last.segments[0].local_begin, 0);
  EXPECT_EQ(last.segments[0].extent, 50257 - 7 * 6283);
}

// Nine rows over eight ranks are parts of two: ranks 5 to 7 hold padding only.
TEST(ShardSplit, RanksWithNothing) {
  for (int rank = 0; rank < 8; ++rank) {
    const ShardSpec spec = split({9}, 0, 8, rank, 4);
    EXPECT_EQ(spec.local_shape, Shape{4});
    EXPECT_EQ(spec.real_elements(), rank < 4 ? 2 : rank < 5 ? 1 : 0);
    ASSERT_EQ(spec.segments.size(), rank < 5 ? 1u : 0u) << rank;
    if (rank < 5) {
      EXPECT_EQ(spec.segments[0].extent, rank < 4 ? 2 : 1) << rank;
    }
  }
}

TEST(ShardSplit, WhatDoesNotDivideIsRefused) {
  EXPECT_THAT(
      [] {
        split({768, 3070}, 1, 4, 0);
      },
      ThrowsMessage<Error>(
          HasSubstr("dimension 1 of (768, 3070) is split in 4 parts, which do "
                    "not divide 3070")));
  EXPECT_THROW(split({768}, 1, 4, 0), std::exception);  // no such dimension
}

// [q; k; v] by whole heads: each block is split by itself.
TEST(ShardBlocks, PartsTileTheTensor) {
  const index_t d = 4;
  for (const index_t heads : {2, 4, 8, 24}) {
    for (const index_t kv_heads : {index_t{2}, heads}) {
      for (const int parts : {1, 2, 4, 8}) {
        if (kv_heads % parts != 0) continue;
        SCOPED_TRACE(::testing::Message()
                     << heads << "/" << kv_heads << " heads in " << parts);
        const std::vector<index_t> blocks = {heads * d, kv_heads * d, kv_heads * d};
        const index_t rows = (heads + 2 * kv_heads) * d;
        const auto make = [&](int rank) {
          return split_blocks({rows, 16}, blocks, parts, rank);
        };
        EXPECT_THAT(held(rows, parts, make), ::testing::Each(1));
        for (int rank = 0; rank < parts; ++rank) {
          const ShardSpec spec = make(rank);
          EXPECT_EQ(spec.local_shape, (Shape{rows / parts, 16}));
          ASSERT_EQ(spec.segments.size(), 3u);
          index_t global_begin = 0, local_begin = 0;
          for (std::size_t block = 0; block < 3; ++block) {
            const index_t local = blocks[block] / parts;
            const Segment& segment = spec.segments[block];
            EXPECT_EQ(segment.extent, local);
            EXPECT_EQ(segment.local_begin, local_begin);
            EXPECT_EQ(segment.global_begin, global_begin + rank * local);
            local_begin += local;
            global_begin += blocks[block];
          }
        }
      }
    }
  }
}

TEST(ShardBlocks, WrongBlocksAreRefused) {
  EXPECT_THAT(
      [] {
        split_blocks({24, 8}, {8, 8}, 2, 0);
      },
      ThrowsMessage<Error>(HasSubstr("blocks of 16 rows in all cut a tensor of "
                                     "(24, 8)")));
  // 24 rows divide by four, blocks of six do not: heads would be torn.
  EXPECT_THAT(
      [] {
        split_blocks({24, 8}, {12, 6, 6}, 4, 0);
      },
      ThrowsMessage<Error>(HasSubstr("a block of 6 rows is split in 4 parts")));
}

}  // namespace
}  // namespace trireme

// Grids of thousands of ranks, of which none is there: every rank in exactly one group of
// each axis, groups that share out the world, in the time of a blink.
#include <gtest/gtest.h>

#include <ctime>
#include <set>

#include "comm/rank_grid.hpp"

namespace trireme::comm {
namespace {

void check_groups(const GridShape& shape, const std::vector<Axis>& axes) {
  int extent = 1;
  for (const Axis axis : axes) extent *= shape.extent(axis);
  std::vector<int> group_of(static_cast<std::size_t>(shape.size()), -1);
  int groups = 0;
  for (int rank = 0; rank < shape.size(); ++rank) {
    if (group_of[static_cast<std::size_t>(rank)] >= 0) continue;
    const std::vector<int> members = members_of(shape, axes, rank);
    ASSERT_EQ(static_cast<int>(members.size()), extent);
    for (const int member : members) {
      ASSERT_EQ(group_of[static_cast<std::size_t>(member)], -1) << member;
      group_of[static_cast<std::size_t>(member)] = groups;
      // It names the same group, from wherever one asks.
      if (member == members.back()) {
        ASSERT_EQ(members_of(shape, axes, member), members);
      }
    }
    ++groups;
  }
  EXPECT_EQ(groups * extent, shape.size());
}

TEST(GridMembersAtScale, AreSharedOut) {
  using enum config::Axis;
  const AxisOrder data_fastest = {data, tensor, context, pipeline};
  for (const GridShape& shape :
       {GridShape{8, 1, 6, 64, config::kDefaultAxisOrder},    // PTD-P: 3072
        GridShape{8, 1, 128, 16, config::kDefaultAxisOrder},  // 16384
        GridShape{8, 2, 64, 16, data_fastest}, GridShape{1, 1, 16384, 1, data_fastest},
        GridShape{3, 1, 5, 7, config::kDefaultAxisOrder}}) {
    SCOPED_TRACE(to_string(shape));
    const std::clock_t start = std::clock();
    for (int rank = 0; rank < shape.size(); ++rank) {
      ASSERT_EQ(rank_of(shape, coordinates_of(shape, rank)), rank);
    }
    for (const Axis axis : {tensor, context, data, pipeline}) check_groups(shape, {axis});
    check_groups(shape, {tensor, pipeline});  // one copy of the model
    // Of the processor, so that other work on the machine does not count.
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 1.0);
  }
}

TEST(GridMembersOrder, FirstAxisIsFastest) {
  using enum config::Axis;
  const GridShape shape{2, 1, 3, 2, config::kDefaultAxisOrder};
  EXPECT_EQ(members_of(shape, {tensor}, 5), (std::vector<int>{4, 5}));
  EXPECT_EQ(members_of(shape, {data}, 5), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(members_of(shape, {pipeline}, 5), (std::vector<int>{5, 11}));
  EXPECT_EQ(members_of(shape, {tensor, pipeline}, 5), (std::vector<int>{4, 5, 10, 11}));
  const GridShape other{2, 1, 3, 2, {data, tensor, context, pipeline}};
  EXPECT_EQ(members_of(other, {data}, 5), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(members_of(other, {tensor}, 5), (std::vector<int>{2, 5}));
}

}  // namespace
}  // namespace trireme::comm

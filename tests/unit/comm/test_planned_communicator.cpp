// A group that is only planned: has a size, passes shape-only calls, sends nothing.
#include "comm/planned_communicator.hpp"

#include <gmock/gmock.h>

#include "comm/rank_grid.hpp"

namespace trireme::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PlannedCommunicatorGroup, SaysItsSize) {
  const auto group = make_planned_communicator(2, 3072, "tensor");
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->size(), 3072);
  EXPECT_EQ(group->name(), "tensor");
  EXPECT_EQ(group->native_handle(), nullptr);
}

TEST(PlannedCommunicatorGroup, ChecksShapesCountsAndSendsNothing) {
  const auto control = make_planned_communicator(0, 4, "tensor");
  Group on_device(control);
  Group* const group = &on_device;
  Tally tally;
  const Exec shapes = Exec::shape_only(tally);
  group->all_reduce(shapes, Span{nullptr, 31, DType::float32});
  group->all_gather(shapes, ConstSpan(nullptr, 31, DType::float32),
                    Span{nullptr, 124, DType::float32});
  // What would be sent is counted: the whole of each buffer.
  EXPECT_EQ(tally.messages(),
            (std::vector<MessageTally>{{"tensor", "", "all_reduce", 1, 31, 4 * 31},
                                       {"tensor", "", "all_gather", 1, 124, 4 * 124}}));
  EXPECT_EQ(group->traffic().calls, 0);
  float value = 1;
  EXPECT_THAT(
      [&] {
        group->all_reduce(Exec(), Span{&value, 1, DType::float32});
      },
      ThrowsMessage<Error>(HasSubstr("'tensor' of 4 ranks is only planned")));
  EXPECT_THAT([&] { control->barrier(); },
              ThrowsMessage<Error>(HasSubstr("is only planned")));
  EXPECT_THAT([&] { control->all_reduce(1.0); },
              ThrowsMessage<Error>(HasSubstr("is only planned")));
}

// The process groups of each of 24 ranks, without the others: as large as the axes, and
// the ranks of a group have its numbers.
TEST(PlannedCommunicatorGroup, GivesTheGroupsOfAnyRank) {
  const GridShape shape{
      2, 1, 3, 4, {Axis::data, Axis::tensor, Axis::pipeline, Axis::context}};
  for (int rank = 0; rank < shape.size(); ++rank) {
    const Coordinates at = coordinates_of(shape, rank);
    ProcessGroups groups =
        make_process_groups(make_planned_communicator(rank, 24, "world"), shape);
    EXPECT_EQ(groups.tensor->size(), 2);
    EXPECT_EQ(groups.tensor->rank(), at.tensor);
    EXPECT_EQ(groups.context->size(), 1);
    EXPECT_EQ(groups.gradient->size(), 3);
    EXPECT_EQ(groups.gradient->rank(), at.data);
    EXPECT_EQ(groups.pipeline->size(), 4);
    EXPECT_EQ(groups.pipeline->rank(), at.pipeline);
    const std::vector<int> model =
        members_of(shape, {Axis::tensor, Axis::pipeline}, rank);
    EXPECT_EQ(groups.model->size(), 8);
    EXPECT_EQ(model.at(static_cast<std::size_t>(groups.model->rank())), rank);
    groups.share({{"word", {0, 2, 3}}});
    if (at.pipeline == 1) {
      EXPECT_THAT([&] { groups.tied("word"); },
                  ThrowsMessage<Error>(HasSubstr("shares 'word' with stage 1")));
    } else {
      EXPECT_EQ(groups.tied("word").size(), 3);
      EXPECT_EQ(groups.tied("word").rank(), std::max(0, at.pipeline - 1));
    }
    EXPECT_EQ(groups.all().size(), at.pipeline == 1 ? 5u : 6u);
    // What ranks compare with each other is the same list on all.
    ASSERT_EQ(groups.traffic().size(), 6u);
    EXPECT_EQ(groups.traffic().back().first, "tied");
  }
}

TEST(PlannedCommunicatorGroup, RefusesARankThatIsNotInIt) {
  EXPECT_THAT([] { make_planned_communicator(4, 4, "tensor"); },
              ThrowsMessage<Error>(HasSubstr("rank 4 of 4 ranks")));
  EXPECT_THROW(make_planned_communicator(-1, 4, "tensor"), Error);
  EXPECT_THROW(make_planned_communicator(0, 0, "tensor"), Error);
}

}  // namespace
}  // namespace trireme::comm

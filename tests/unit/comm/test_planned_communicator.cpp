// A group that is only planned: has a size, passes shape-only calls, sends nothing.
#include "comm/planned_communicator.hpp"

#include <gmock/gmock.h>

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
  const auto group = make_planned_communicator(0, 4, "tensor");
  const Exec shapes = Exec::shape_only();
  group->all_reduce(shapes, Span{nullptr, 31, DType::float32});
  group->all_gather(shapes, ConstSpan(nullptr, 31, DType::float32),
                    Span{nullptr, 124, DType::float32});
  // What would be sent is counted: the whole of each buffer.
  EXPECT_EQ(group->traffic().calls, 2);
  EXPECT_EQ(group->traffic().elements, 31 + 124);
  EXPECT_EQ(group->traffic().bytes, 4 * (31 + 124));
  float value = 1;
  EXPECT_THAT(
      [&] {
        group->all_reduce(Exec(), Span{&value, 1, DType::float32});
      },
      ThrowsMessage<Error>(HasSubstr("'tensor' of 4 ranks is only planned")));
  EXPECT_THAT([&] { group->barrier(); },
              ThrowsMessage<Error>(HasSubstr("is only planned")));
  EXPECT_THAT([&] { group->all_reduce(1.0); },
              ThrowsMessage<Error>(HasSubstr("is only planned")));
}

TEST(PlannedCommunicatorGroup, RefusesARankThatIsNotInIt) {
  EXPECT_THAT([] { make_planned_communicator(4, 4, "tensor"); },
              ThrowsMessage<Error>(HasSubstr("rank 4 of 4 ranks")));
  EXPECT_THROW(make_planned_communicator(-1, 4, "tensor"), Error);
  EXPECT_THROW(make_planned_communicator(0, 0, "tensor"), Error);
}

}  // namespace
}  // namespace trireme::comm

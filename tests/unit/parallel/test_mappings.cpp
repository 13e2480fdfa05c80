// The borders of a tensor-parallel region of one rank: nothing changes, nothing is sent.
#include "parallel/mappings.hpp"

#include "comm/group.hpp"
#include "comm/self_communicator.hpp"
#include "support/arrays.hpp"

namespace trireme::parallel {
namespace {

template <class T>
class MappingsAlone : public ::testing::Test {};
TYPED_TEST_SUITE(MappingsAlone, test::RealTypes);

TYPED_TEST(MappingsAlone, LeaveEverything) {
  using T = TypeParam;
  comm::Group group(comm::make_self_communicator("tensor"));
  const test::Array<T> x(test::uniform(7 * 9, 1));
  const auto before = x.bytes();
  reduce_from_tensor_parallel_region<T>(Exec(), group, x.matrix(7, 9), "test");
  EXPECT_EQ(x.bytes(), before);
  const test::Array<T> whole(7 * 9), part(7 * 9);
  gather_from_sequence_parallel_region<T>(Exec(), group, x.cmatrix(7, 9),
                                          whole.matrix(7, 9), "test");
  EXPECT_EQ(whole.bytes(), before);
  reduce_scatter_to_sequence_parallel_region<T>(Exec(), group, x.cmatrix(7, 9),
                                                part.matrix(7, 9), "test");
  EXPECT_EQ(part.bytes(), before);
  EXPECT_EQ(group.traffic().calls, 0);
  // As in a shape-only pass, before there is memory.
  const View2<T> none(static_cast<T*>(nullptr), 7, 9);
  EXPECT_NO_THROW(
      reduce_from_tensor_parallel_region<T>(Exec::shape_only(), group, none, "test"));
}

}  // namespace
}  // namespace trireme::parallel

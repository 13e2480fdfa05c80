// Layouts of each kind over NCCL itself, in whose place the tests have a library that
// carries messages late and one communicator's after the other
// (tests/support/fake_nccl.hpp): none hangs, reads what is not there yet, or comes to
// other numbers than one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/mpi_communicator.hpp"
#include "layouts/layout_matrix.hpp"
#include "support/fake_nccl.hpp"

namespace trireme::test {
namespace {

TEST(NcclLayouts, AreCarried) {
  comm::MpiOptions nccl;
  nccl.wait = comm::WaitPolicy::yield;
  nccl.transport = comm::TransportKind::nccl;
  run_layouts_over(nccl, of_each_kind(all_layouts(8)));
  run_layouts_over(nccl, of_each_kind(all_pipelines(8)));
  EXPECT_THAT(fake_nccl().take_violations(), ::testing::IsEmpty());
  EXPECT_EQ(fake_nccl().communicators, 0);
}

}  // namespace
}  // namespace trireme::test

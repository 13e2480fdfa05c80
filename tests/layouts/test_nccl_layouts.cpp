// Layouts of each kind over NCCL itself, in whose place the tests have a library that
// carries messages late and one communicator's after the other
// (tests/support/fake_nccl.hpp): none hangs, reads what is not there yet, or comes to
// other numbers than one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "comm/mpi_communicator.hpp"
#include "layouts/layout_matrix.hpp"
#include "support/fake_nccl.hpp"

namespace trireme::test {
namespace {

void expect_carried(const std::vector<Layout>& layouts) {
  comm::MpiOptions nccl;
  nccl.wait = comm::WaitPolicy::yield;
  nccl.transport = comm::TransportKind::nccl;
  run_layouts_over(nccl, layouts);
  EXPECT_THAT(fake_nccl().take_violations(), ::testing::IsEmpty());
  EXPECT_EQ(fake_nccl().communicators, 0);
}

TEST(NcclLayouts, AreCarried) {
  expect_carried(of_each_kind(all_layouts(8)));
  expect_carried(of_each_kind(all_pipelines(8)));
}

// What no GPT sends: rows of masked words, and of a sample's first position; an encoder's
// output, which travels on beside the decoder's text; words that three stages share, or
// two chunks of one. Each has all ranks, which begin with NCCL together, as in a run.
TEST(NcclLayouts, OfOtherKindsAreCarried) {
  using config::PipelineSchedule;
  std::vector<Layout> bert = {
      {.tensor = 2, .sequence = 1, .data = 4, .zero = 3, .microbatches = 3},
      {.tensor = 2,
       .sequence = 1,
       .data = 2,
       .microbatches = 3,
       .pipeline = 2,
       .recompute = 1}};
  std::vector<Layout> t5 = {{.data = 4, .zero = 1, .pipeline = 2, .chunks = 3},
                            {.tensor = 2,
                             .sequence = 1,
                             .microbatches = 4,
                             .pipeline = 4,
                             .schedule = PipelineSchedule::gpipe,
                             .recompute = -1},
                            {.data = 2,
                             .zero = 2,
                             .microbatches = 3,
                             .pipeline = 4,
                             .schedule = PipelineSchedule::zero_bubble,
                             .uneven = 3}};
  for (Layout& layout : bert) layout.size = kSmall;
  for (Layout& layout : t5) layout.size = kSmall;
  expect_carried(of_kind(Kind::bert, bert));
  expect_carried(of_kind(Kind::bert_post, bert));
  expect_carried(of_kind(Kind::t5, t5));
  expect_carried(of_kind(Kind::t5_own_head, t5));
}

}  // namespace
}  // namespace trireme::test

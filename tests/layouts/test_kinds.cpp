// A kind of model that only tests have in the layout matrix: along every axis it has the
// answer of one rank, over either transport, though nothing above its blocks was made for
// it. BERT and T5: test_kind_covering.cpp, but for NCCL's rules, which are here.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

// Each schedule, degree of ZeRO and way to recompute, on two to four stages. With three
// chunks a stage, the layers that share a table are in several chunks of one stage.
std::vector<Layout> in_pipelines(Kind kind) {
  constexpr auto kZeroBubble = config::PipelineSchedule::zero_bubble;
  constexpr auto kGpipe = config::PipelineSchedule::gpipe;
  std::vector<Layout> layouts = {
      {.microbatches = 4, .pipeline = 4, .recompute = 1},
      {.microbatches = 6, .pipeline = 3, .schedule = kGpipe, .uneven = 1},
      {.tensor = 2,
       .sequence = 1,
       .microbatches = 3,
       .pipeline = 3,
       .schedule = kZeroBubble,
       .recompute = -1},
      {.pipeline = 2, .chunks = 3},
      {.data = 2, .zero = 1, .microbatches = 4, .pipeline = 2, .chunks = 3},
      {.data = 2,
       .zero = 2,
       .microbatches = 4,
       .pipeline = 2,
       .chunks = 3,
       .recompute = 100},
      {.data = 2,
       .zero = 3,
       .microbatches = 4,
       .pipeline = 2,
       .chunks = 3,
       .schedule = kZeroBubble},
      {.tensor = 2,
       .sequence = 1,
       .data = 2,
       .zero = 2,
       .microbatches = 3,
       .pipeline = 2,
       .uneven = 2},
      {.tensor = 2, .data = 2, .zero = 3, .pipeline = 2, .schedule = kZeroBubble}};
  for (Layout& layout : layouts) layout.size = kDeep;
  return of_kind(kind, layouts);
}

class KindOnAxes : public ::testing::TestWithParam<Kind> {};
TEST_P(KindOnAxes, HasOneAnswer) {
  run_layouts(of_kind(GetParam(), of_each_kind(all_layouts(8))));
}
class KindInPipelines : public ::testing::TestWithParam<Kind> {};
TEST_P(KindInPipelines, HasOneAnswer) {
  run_layouts(in_pipelines(GetParam()));
}
// What differs from kind to kind between stages is how many tensors cross a border.
class KindOverNccl : public ::testing::TestWithParam<Kind> {};
TEST_P(KindOverNccl, IsCarried) {
  run_layouts_strictly(in_pipelines(GetParam()));
}

// A BERT's own messages are those of its heads, with sequence parallelism: of the masked
// rows, and of the row that the pooler reads. Each head is on the last stage, or on a
// rank that has all.
class BertOverNccl : public ::testing::TestWithParam<Kind> {};
TEST_P(BertOverNccl, IsCarried) {
  std::vector<Layout> layouts = {
      {.tensor = 4, .sequence = 1, .microbatches = 2, .recompute = 1},
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 3, .microbatches = 2}};
  for (Layout& layout : layouts) layout.size = kSmall;
  for (const Layout& layout : in_pipelines(GetParam())) {
    if (layout.tensor > 1) layouts.push_back(layout);
  }
  const std::set<std::string> sites =
      run_layouts_strictly(of_kind(GetParam(), std::move(layouts)));
  // The last stages are not on every rank: of all of them together.
  for (const char* site : {"rows of masked words", "first position of samples"}) {
    EXPECT_TRUE(layout_world()->any(sites.count(site) > 0)) << site;
  }
}

std::string name_of_kind(const ::testing::TestParamInfo<Kind>& info) {
  return name_of(info.param);
}

INSTANTIATE_TEST_SUITE_P(Kinds, KindOnAxes, ::testing::Values(Kind::encoder_decoder),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kinds, KindInPipelines, ::testing::Values(Kind::encoder_decoder),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kinds, KindOverNccl,
                         ::testing::Values(Kind::encoder_decoder, Kind::t5),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kinds, BertOverNccl,
                         ::testing::Values(Kind::bert, Kind::bert_post), name_of_kind);

}  // namespace
}  // namespace trireme::test

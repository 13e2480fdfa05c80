// A kind of model that only tests have in the layout matrix: along every axis it has the
// answer of one rank, over either transport, though nothing above its blocks was made for
// it. BERT and T5: test_kind_covering.cpp.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

std::vector<Layout> of_kind(Kind kind, std::vector<Layout> layouts) {
  for (Layout& layout : layouts) layout.size.kind = kind;
  return layouts;
}

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

}  // namespace
}  // namespace trireme::test

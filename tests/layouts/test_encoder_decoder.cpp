// The second kind of model in the layout matrix: along every axis it has the answer of
// one rank, over either transport, though nothing above its blocks was made for it.
#include <gtest/gtest.h>

#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

std::vector<Layout> with_encoder(std::vector<Layout> layouts) {
  for (Layout& layout : layouts) layout.size.kind = Kind::encoder_decoder;
  return layouts;
}

// Each schedule, degree of ZeRO and way to recompute, on two to four stages. With three
// chunks a stage, the layers that share a table are in several chunks of one stage.
std::vector<Layout> in_pipelines() {
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
  return with_encoder(layouts);
}

TEST(EncoderDecoderOnAxes, HasOneAnswer) {
  run_layouts(with_encoder(of_each_kind(all_layouts(8))));
}

TEST(EncoderDecoderInPipelines, HasOneAnswer) {
  run_layouts(in_pipelines());
}

TEST(EncoderDecoderOverNccl, IsCarried) {
  run_layouts_strictly(in_pipelines());
}

}  // namespace
}  // namespace trireme::test

// The whole layout matrix of pipelines: every combination of what a pipeline is (stages,
// chunks, schedule, split, recomputation, micro-batches), each with another combination
// of the other axes that fits 8 ranks, in turn; and every triple of values of any axes.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

// In parts, as each takes minutes: --gtest_filter=PipelineProductPart.OfEight_3
void run_part(std::size_t part) {
  const std::vector<Layout> all = one_of_each_pipeline(all_pipelines(8));
  std::vector<Layout> rows;
  for (std::size_t i = part; i < all.size(); i += 8) rows.push_back(all[i]);
  run_layouts(rows);
}

TEST(PipelineProductTriples, HaveOneAnswer) {
  std::vector<Layout> layouts = all_pipelines(8);
  // One, and as many as stages, or more, or fewer, are among the others.
  std::erase_if(layouts, [](const Layout& layout) { return layout.microbatches == 2; });
  run_layouts(covering(layouts));
}

TEST(PipelineProductPart, OfEight_0) {
  run_part(0);
}
TEST(PipelineProductPart, OfEight_1) {
  run_part(1);
}
TEST(PipelineProductPart, OfEight_2) {
  run_part(2);
}
TEST(PipelineProductPart, OfEight_3) {
  run_part(3);
}
TEST(PipelineProductPart, OfEight_4) {
  run_part(4);
}
TEST(PipelineProductPart, OfEight_5) {
  run_part(5);
}
TEST(PipelineProductPart, OfEight_6) {
  run_part(6);
}
TEST(PipelineProductPart, OfEight_7) {
  run_part(7);
}

}  // namespace
}  // namespace trireme::test

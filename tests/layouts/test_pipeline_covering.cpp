// The layout matrix of pipelines, of every day: rows of their table in which every pair
// and every triple of values stands.
#include <gtest/gtest.h>

#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(PipelineCoveringTriples, HaveOneAnswer) {
  std::vector<Layout> layouts = all_pipelines(8);
  // One, and as many as stages, or more, or fewer, are among the others.
  std::erase_if(layouts, [](const Layout& layout) { return layout.microbatches == 2; });
  run_layouts(covering(layouts));
}

// Heads that are together wider than the model: 8 of 10 in 48.
TEST(PipelineHeads, MayHaveASizeOfTheirOwn) {
  MatrixSize size = kDeep;
  size.head_size = 10;
  std::vector<Layout> layouts;
  for (const int zero : {1, 3}) {
    Layout layout{.tensor = 2, .sequence = 1, .data = 2, .zero = zero, .microbatches = 3};
    layout.pipeline = 2;
    layout.size = size;
    layouts.push_back(layout);
  }
  run_layouts(layouts);
}

}  // namespace
}  // namespace trireme::test

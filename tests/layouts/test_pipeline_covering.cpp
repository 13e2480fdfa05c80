// The layout matrix of pipelines, of every day: rows of their table in which every pair
// of values stands. Every triple, and every pipeline, over ten steps:
// test_pipeline_product.cpp, of the label long.
#include <gtest/gtest.h>

#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(PipelineCoveringPairs, HaveOneAnswer) {
  run_layouts(covering(all_pipelines(8), Meet::pairs), kStepsOfPairs);
}

// Heads that are together wider than the model: 8 of 10 in 48.
TEST(PipelineCoveringHeads, MayHaveASizeOfTheirOwn) {
  MatrixSize size = kDeep;
  size.head_size = 10;
  std::vector<Layout> layouts;
  for (const int zero : {1, 3}) {
    Layout layout{.tensor = 2, .sequence = 1, .data = 2, .zero = zero, .microbatches = 3};
    layout.pipeline = 2;
    layout.size = size;
    layouts.push_back(layout);
  }
  run_layouts(layouts, kStepsOfPairs);
}

}  // namespace
}  // namespace trireme::test

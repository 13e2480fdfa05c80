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

}  // namespace
}  // namespace trireme::test

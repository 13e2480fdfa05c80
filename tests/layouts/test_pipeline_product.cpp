// The whole layout matrix of pipelines: every combination of what a pipeline is (stages,
// chunks, schedule, split, recomputation, micro-batches), each with another combination
// of the other axes that fits 8 ranks, in turn.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

std::vector<Layout> one_of_each_pipeline(const std::vector<Layout>& all) {
  std::map<std::vector<int>, std::vector<Layout>> by_pipeline;
  for (const Layout& layout : all) {
    by_pipeline[{layout.pipeline, layout.chunks, static_cast<int>(layout.schedule),
                 layout.uneven, layout.recompute, layout.microbatches}]
        .push_back(layout);
  }
  std::vector<Layout> layouts;
  for (const auto& [pipeline, others] : by_pipeline) {
    layouts.push_back(others[layouts.size() % others.size()]);
  }
  return layouts;
}

TEST(PipelineProductAll, HaveOneAnswer) {
  run_layouts(one_of_each_pipeline(all_pipelines(8)));
}

}  // namespace
}  // namespace trireme::test

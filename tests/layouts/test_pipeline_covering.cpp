// The layout matrix of pipelines, of every day: rows of their table in which every pair
// and every triple of values stands.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(PipelineCoveringTriples, HaveOneAnswer) {
  run_layouts(covering(all_pipelines(8)));
}

}  // namespace
}  // namespace trireme::test

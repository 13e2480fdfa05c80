// The layout matrix of every day: rows of the table in which every pair and every triple
// of values stands.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(LayoutCoveringTriples, HaveOneAnswer) {
  run_layouts(covering(all_layouts(8)));
}

}  // namespace
}  // namespace trireme::test

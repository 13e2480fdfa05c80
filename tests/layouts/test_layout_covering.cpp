// The layout matrix of every day: rows of the table in which every pair of values stands.
// All rows, and over ten steps: test_layout_product.cpp, of the label long.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(LayoutCoveringPairs, HaveOneAnswer) {
  run_layouts(covering(all_layouts(8), Meet::pairs), kStepsOfPairs);
}

}  // namespace
}  // namespace trireme::test

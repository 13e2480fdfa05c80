// The whole layout matrix: every combination of the table that fits 8 ranks.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(LayoutProductAll, HaveOneAnswer) {
  run_layouts(all_layouts(8));
}

}  // namespace
}  // namespace trireme::test

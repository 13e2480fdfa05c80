// The whole table of axes, and every pipeline once, over a transport that carries what
// NCCL would carry, and refuses the rest.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(StrictProductOfLayouts, NcclWouldCarryThem) {
  run_layouts_strictly(all_layouts(8));
}

TEST(StrictProductOfPipelines, NcclWouldCarryThem) {
  run_layouts_strictly(one_of_each_pipeline(all_pipelines(8)));
}

}  // namespace
}  // namespace trireme::test

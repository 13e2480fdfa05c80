// Layouts of every day over a transport that carries what NCCL would carry, and refuses
// the rest: every two settings meet in one, and every site sends. All layouts go over it
// with ./runtests --full.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(StrictCoveringOfLayouts, NcclWouldCarryThem) {
  std::set<std::string> sites =
      run_layouts_strictly(covering(all_layouts(8), Meet::pairs));
  sites.merge(run_layouts_strictly(covering(all_pipelines(8), Meet::pairs)));
  // A rank is not on every stage: of all of them together.
  for (const char* site : {"word embedding",
                           "row-parallel output",
                           "column-parallel input",
                           "column-parallel input gradient",
                           "column-parallel input, for its weight",
                           "row-parallel output gradient",
                           "word embedding gradient",
                           "head input",
                           "head input gradient",
                           "loss: maximum",
                           "loss: sums",
                           "loss totals",
                           "objective counts",
                           "gradients",
                           "gradients of the sequence region",
                           "gradient norm",
                           "tied gradient",
                           "weights (ZeRO)",
                           "weights (ZeRO 3)",
                           "activations",
                           "activation gradients",
                           "slices of stage messages"}) {
    EXPECT_TRUE(layout_world()->any(sites.count(site) > 0)) << site;
  }
}

}  // namespace
}  // namespace trireme::test

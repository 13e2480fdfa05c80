// Steps of models that compute in 16 bits, on several ranks: every gradient beside one
// rank's, master weights and what passes read of them alike wherever they should be, and
// messages of the types they should have: activations and weights in 16 bits, gradients
// and their sums in fp32.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

// Every kind of message, and every degree of ZeRO.
std::vector<Layout> layouts() {
  using config::PipelineSchedule;
  std::vector<Layout> rows = {
      {.tensor = 4},
      {.data = 3, .zero = 0, .microbatches = 2},
      {.data = 4, .zero = 1, .microbatches = 3, .small_buckets = 1},
      {.data = 2, .zero = 2, .microbatches = 2},
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 2},
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 3, .microbatches = 2}};
  for (Layout deep : {Layout{.data = 2, .zero = 1, .microbatches = 4, .pipeline = 2},
                      Layout{.tensor = 2,
                      .sequence = 1,
                      .microbatches = 4,
                      .pipeline = 2,
                      .schedule = PipelineSchedule::zero_bubble,
                      .recompute = 1},
                      Layout{.tensor = 2,
                      .data = 2,
                      .zero = 3,
                      .microbatches = 2,
                      .pipeline = 2,
                      .chunks = 2}}) {
    deep.size = kDeep;
    rows.push_back(deep);
  }
  return rows;
}

TEST(NarrowSteps, InBf16) {
  run_narrow_layouts<bf16>(layouts());
}
TEST(NarrowSteps, InFp16) {
  run_narrow_layouts<fp16>(layouts());
}

}  // namespace
}  // namespace trireme::test

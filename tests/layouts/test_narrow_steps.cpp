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

// What another kind sends and keeps of its own: over tensor ranks that have all positions
// and that share them, over borders, with each degree of ZeRO that shares anything.
std::vector<Layout> layouts_of(Kind kind) {
  using config::PipelineSchedule;
  std::vector<Layout> rows = {
      {.tensor = 4, .data = 2, .zero = 1, .small_buckets = 1},
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 3, .microbatches = 3},
      {.tensor = 2,
       .sequence = 1,
       .microbatches = 4,
       .pipeline = 2,
       .schedule = PipelineSchedule::zero_bubble,
       .recompute = 1},
      {.data = 2,
       .zero = 2,
       .microbatches = 2,
       .pipeline = 2,
       .chunks = 2,
       .recompute = -1}};
  for (Layout& row : rows) row.size = kSmall;
  return of_kind(kind, rows);
}

class NarrowStepsOf : public ::testing::TestWithParam<Kind> {};
TEST_P(NarrowStepsOf, InBf16) {
  run_narrow_layouts<bf16>(layouts_of(GetParam()));
}
TEST_P(NarrowStepsOf, InFp16) {
  run_narrow_layouts<fp16>(layouts_of(GetParam()));
}
INSTANTIATE_TEST_SUITE_P(NarrowSteps, NarrowStepsOf,
                         ::testing::Values(Kind::bert, Kind::bert_post, Kind::t5,
                                           Kind::t5_own_head),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace trireme::test

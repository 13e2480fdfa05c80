// BERT and T5 in bf16, every day: the rows of test_kind_covering.cpp, in which every pair
// of values stands, pipelines and the axes that each kind has of its own among them. In
// fp16, and over 40 steps: test_narrow_covering.cpp, of the label long.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

class NarrowKindsOf : public ::testing::TestWithParam<model::ModelKind> {};

TEST_P(NarrowKindsOf, PairsHaveOneAnswerInBf16) {
  run_narrow_layouts<bf16>(covering(all_rows_of(GetParam(), 8), Meet::pairs));
}
INSTANTIATE_TEST_SUITE_P(NarrowKinds, NarrowKindsOf,
                         ::testing::Values(model::ModelKind::bert, model::ModelKind::t5),
                         [](const auto& info) {
                           return info.param == model::ModelKind::bert ? "Bert" : "T5";
                         });

}  // namespace
}  // namespace trireme::test

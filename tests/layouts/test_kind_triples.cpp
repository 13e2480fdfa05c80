// BERT and T5 in the layout matrix: rows of its table, pipelines and the axes that each
// kind has of its own among them, in which every triple of values stands; and every pair
// over a transport that carries what NCCL would carry, and refuses the rest.
#include <gtest/gtest.h>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

TEST(KindTriples, OfBertHaveOneAnswer) {
  run_layouts(covering(all_rows_of(model::ModelKind::bert, 8)));
}
TEST(KindTriples, OfT5HaveOneAnswer) {
  run_layouts(covering(all_rows_of(model::ModelKind::t5, 8)));
}

TEST(KindTriples, PairsOfBertNcclWouldCarry) {
  run_layouts_strictly(covering(all_rows_of(model::ModelKind::bert, 8), Meet::pairs));
}
TEST(KindTriples, PairsOfT5NcclWouldCarry) {
  run_layouts_strictly(covering(all_rows_of(model::ModelKind::t5, 8), Meet::pairs));
}

}  // namespace
}  // namespace trireme::test

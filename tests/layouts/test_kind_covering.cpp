// BERT and T5 in the layout matrix, every day: rows of its table, pipelines and the axes
// that each kind has of its own among them, in which every pair of values stands. Every
// triple: test_kind_triples.cpp, of the label long.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layouts/layout_matrix.hpp"

namespace trireme::test {
namespace {

class KindCoveringOf : public ::testing::TestWithParam<model::ModelKind> {};

TEST_P(KindCoveringOf, PairsHaveOneAnswer) {
  run_layouts(covering(all_rows_of(GetParam(), 8), Meet::pairs), kStepsOfPairs);
}

// A stage with the borders of both stacks has units that borrow all that they read, and
// whose buckets are empty: these take no turn in the copies that reductions are made by.
TEST(KindCoveringStages, OfBothStacksKeepWhatIsPlanned) {
  MatrixSize size = kSmall;
  size.kind = Kind::t5;
  size.no_gate = 1;
  Layout layout{.data = 2, .zero = 1, .small_buckets = 1, .pipeline = 4};
  layout.schedule = config::PipelineSchedule::gpipe;
  layout.size = size;
  run_layouts({layout}, kStepsOfPairs);
}

// Axes of a kind's own are dealt out to the rows of the others; every value of the ones
// must have met every value of the others there, or no array would have the pair.
TEST_P(KindCoveringOf, TableHasEveryPairOfTwoAxesOfWhichOneIsTheKinds) {
  if (layout_world()->rank() != 0) return;  // it is the same on all
  const std::vector<Layout> rows = all_rows_of(GetParam(), 8);
  Layout gpt;
  const std::size_t common = gpt.values().size(), all = rows.front().values().size();
  ASSERT_GT(all, common + 1);
  std::vector<std::set<int>> values(all);
  std::map<std::pair<std::size_t, std::size_t>, std::set<std::pair<int, int>>> pairs;
  for (const Layout& row : rows) {
    const std::vector<int> of_row = row.values();
    for (std::size_t b = 0; b < all; ++b) {
      values[b].insert(of_row[b]);
      for (std::size_t a = common; a < all; ++a) {
        pairs[{a, b}].insert({of_row[a], of_row[b]});
      }
    }
  }
  constexpr std::size_t kData = 2;  // of the axes
  EXPECT_EQ(values[kData], (std::set<int>{1, 2, 4, 8}));
  for (std::size_t a = common; a < all; ++a) {
    EXPECT_EQ(values[a].size(), 2u);
    for (std::size_t b = 0; b < all; ++b) {
      if (a == b) continue;
      EXPECT_EQ((pairs[{a, b}].size()), 2 * values[b].size()) << a << " with " << b;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(KindCovering, KindCoveringOf,
                         ::testing::Values(model::ModelKind::bert, model::ModelKind::t5),
                         [](const auto& info) {
                           return info.param == model::ModelKind::bert ? "Bert" : "T5";
                         });

}  // namespace
}  // namespace trireme::test

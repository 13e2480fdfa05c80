// What small models say of one whose layers are of several classes, an encoder and a
// decoder: wherever its pipeline is cut, pieces, layers and micro-batches add up to the
// tally of the whole step, exactly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/load.hpp"
#include "layouts/layout_matrix.hpp"
#include "plan/deck_memory.hpp"
#include "plan/layer_runs.hpp"
#include "plan/workload.hpp"
#include "step/deck_model.hpp"
#include "step/step_plan.hpp"
#include "unit/plan/workload_sums.hpp"

namespace trireme::test {
namespace {

using plan::LayerRuns;
using plan::PieceKind;
using ::testing::ElementsAre;

// e e e m d d m: layers that share a table, which depends on where the others of them
// are, are left out.
model::Blueprint two_sides() {
  model::Blueprint blueprint =
      encoder_decoder(matrix_model({.layers = 10, .heads = 8, .samples = 0}));
  std::erase_if(blueprint.blocks, [](const auto& of) { return of.table == "notes"; });
  std::erase_if(blueprint.tables, [](const auto& of) { return of.name == "notes"; });
  blueprint.check();
  return blueprint;
}

config::Deck deck_with(const std::vector<std::string>& overrides, int ranks) {
  config::Deck deck = config::parse(
      "model: {kind: gpt, layers: 7, hidden: 48, heads: 8, sequence: 24, vocab: 61}\n"
      "data: {train: none}\n"
      "batch: {micro: 2, global: 10}\n",
      "deck", {.overrides = overrides, .ranks = ranks});
  deck.model = matrix_model({.layers = 7, .heads = 8, .samples = 0});
  return deck;
}

step::StepPlan plan_of_stage(const config::Deck& deck, const model::Blueprint& blueprint,
                             const step::Sharing& sharing, int stage) {
  const step::ModelState<float> state(plan::planned_groups(deck.parallel, stage),
                                      blueprint, sharing,
                                      &make_encoder_decoder_block<float>);
  return step::plan_step(state, step::step_shape(deck));
}

TEST(EncoderDecoderWorkloadRuns, AreOfLayersThatAreAlike) {
  const LayerRuns runs(two_sides());
  ASSERT_EQ(runs.runs().size(), 4u);
  EXPECT_EQ(runs.classes(), 3u);
  EXPECT_EQ(runs.layers(), 7);
  EXPECT_EQ(runs.runs()[3].layer_class, runs.runs()[1].layer_class);
  EXPECT_THAT(runs.counts(2, 7), ElementsAre(1, 2, 2));
  EXPECT_THAT(runs.counts(4, 5), ElementsAre(0, 0, 1));
  const auto kind = [&](int piece, index_t begin, index_t end) {
    return runs.kind_of(piece, 4, begin, end);
  };
  EXPECT_EQ(kind(0, 0, 2), (PieceKind{0, 0, true, false}));
  EXPECT_EQ(kind(1, 1, 2), (PieceKind{0, 0, false, false}));
  EXPECT_EQ(kind(1, 2, 5), (PieceKind{0, 2, false, false}));
  EXPECT_EQ(kind(1, 3, 4), (PieceKind{1, 1, true, true}));
  EXPECT_EQ(kind(3, 5, 7), (PieceKind{2, 3, false, true}));
  // Pieces without layers, and one that has all of them, but no end of the model.
  EXPECT_EQ(kind(0, 0, 0), (PieceKind{0, 0, true, false}));
  EXPECT_EQ(kind(3, 7, 7), (PieceKind{3, 3, false, true}));
  EXPECT_EQ(kind(1, 0, 7), (PieceKind{0, 3, false, false}));
  EXPECT_EQ(runs.kind_of(0, 1, 0, 7), runs.whole());
}

struct Case {
  std::vector<std::string> overrides;
  int ranks;
  std::vector<index_t> split;
};

class EncoderDecoderWorkload : public ::testing::TestWithParam<Case> {};

TEST_P(EncoderDecoderWorkload, IsTheStepsTally) {
  const auto& [overrides, ranks, split] = GetParam();
  const config::Deck deck = deck_with(overrides, ranks);
  const model::Blueprint blueprint = two_sides();
  plan::Workloads workloads(deck, blueprint, &plan_of_stage);
  const step::Sharing sharing{.sequence_parallel = deck.parallel.sequence,
                              .pipeline = {.stages = deck.parallel.pipeline,
                                           .split = {split.begin(), split.end()},
                                           .schedule = deck.parallel.schedule}};
  for (int stage = 0; stage < deck.parallel.pipeline; ++stage) {
    const Tally planned = plan_of_stage(deck, blueprint, sharing, stage).tally;
    EXPECT_EQ(plan::amounts(plan::summed(workloads, deck, split, stage)),
              plan::amounts(planned))
        << "stage " << stage;
  }
}

const std::string kThree = "parallel.pipeline=3", kFour = "parallel.pipeline=4";
INSTANTIATE_TEST_SUITE_P(
    EncoderDecoderWorkload, EncoderDecoderWorkload,
    ::testing::Values(Case{{}, 1, {7}}, Case{{"memory.recompute=full"}, 1, {7}},
                      Case{{"parallel.tensor=2", "parallel.sequence=true"}, 2, {7}},
                      Case{{kThree}, 3, {2, 2, 3}}, Case{{kThree}, 3, {3, 3, 1}},
                      Case{{kThree}, 3, {1, 4, 2}},
                      Case{{kThree, "parallel.tensor=2"}, 6, {4, 1, 2}},
                      Case{{kThree, "parallel.schedule=zero_bubble"}, 3, {1, 3, 3}},
                      Case{{kFour}, 4, {1, 1, 2, 3}}, Case{{kFour}, 4, {3, 1, 2, 1}}));

}  // namespace
}  // namespace trireme::test

// What small models say of large ones: pieces, layers and micro-batches add up to the
// whole step's tally, exactly.
#include "plan/workload.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/load.hpp"
#include "plan/performance_model.hpp"
#include "unit/plan/planned_tally.hpp"
#include "unit/plan/workload_sums.hpp"

namespace trireme::plan {
namespace {

config::Deck whole_deck(const std::vector<std::string>& overrides, int ranks) {
  return config::parse(
      "model: {kind: gpt, layers: 9, hidden: 64, heads: 4, sequence: 32, vocab: 1000}\n"
      "data: {train: none}\n"
      "batch: {micro: 2, global: 10}\n",
      "deck", {.overrides = overrides, .ranks = ranks});
}

struct Layouts {
  const char* name;
  std::vector<std::string> overrides;
  int ranks;
};

class WorkloadSums : public ::testing::TestWithParam<Layouts> {};

TEST_P(WorkloadSums, AreTheStepsTally) {
  const config::Deck deck = whole_deck(GetParam().overrides, GetParam().ranks);
  Workloads workloads(deck);
  for (int stage = 0; stage < deck.parallel.pipeline; ++stage) {
    EXPECT_EQ(amounts(summed(workloads, deck, split_of(deck), stage)),
              amounts(test::planned_tally(deck, stage)))
        << GetParam().name << ", stage " << stage;
  }
}

INSTANTIATE_TEST_SUITE_P(
    WorkloadLayouts, WorkloadSums,
    ::testing::Values(
        Layouts{"one rank", {}, 1},
        Layouts{
            "bf16, recomputed", {"precision.compute=bf16", "memory.recompute=full"}, 1},
        Layouts{"selective", {"memory.recompute=selective"}, 1},
        Layouts{"tensor", {"parallel.tensor=2"}, 2},
        Layouts{"sequence", {"parallel.tensor=4", "parallel.sequence=true"}, 4},
        Layouts{"pipeline", {"parallel.pipeline=4", "parallel.stages=[2, 3, 3, 1]"}, 4},
        Layouts{
            "pipeline of two, recomputed",
            {"parallel.pipeline=2", "parallel.stages=[5, 4]", "memory.recompute=full"},
            2},
        Layouts{"pipeline and tensor",
                {"parallel.pipeline=3", "parallel.stages=[2, 4, 3]", "parallel.tensor=2"},
                6},
        Layouts{"zero bubble",
                {"parallel.pipeline=3", "parallel.stages=[3, 3, 3]",
                 "parallel.schedule=zero_bubble"},
                3}));

// Passes that a pipeline's stages take apart are known apart.
TEST(WorkloadPasses, AreKnownByTheirKind) {
  const config::Deck plain = whole_deck({}, 1);
  Workloads workloads(plain);
  const PassWork& whole = workloads.layer(workload_key(plain), 0).passes;
  EXPECT_EQ(whole.backward_weight.total().cost.flops, 0.0);
  EXPECT_DOUBLE_EQ(whole.backward.total().cost.flops,
                   2.0 * whole.forward.total().cost.flops);
  const config::Deck split =
      whole_deck({"parallel.pipeline=3", "parallel.schedule=zero_bubble"}, 3);
  const PassWork& parts = workloads.layer(workload_key(split), 0).passes;
  EXPECT_GT(parts.backward_weight.total().cost.flops, 0.0);
  EXPECT_DOUBLE_EQ(
      parts.backward.total().cost.flops + parts.backward_weight.total().cost.flops,
      whole.backward.total().cost.flops);
}

}  // namespace
}  // namespace trireme::plan

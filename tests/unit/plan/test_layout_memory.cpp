// The estimate of a layout's memory against the plan of its steps.
#include "plan/layout_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

Machine machine_of(AttentionKind attention) {
  Machine machine;
  machine.software.attention = attention;
  return machine;
}

// Of the stage that takes most, but for products, which are a matter of the device.
double planned_bytes(const config::Deck& deck) {
  const step::Sharing shared = step::sharing(deck);
  double most = 0.0;
  for (int stage = 0; stage < deck.parallel.pipeline; ++stage) {
    const auto replica =
        step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
    step::MemoryPlan plan = plan_memory(*replica, deck);
    plan.products = 0;
    most = std::max(most, static_cast<double>(plan.total()));
  }
  return most;
}

config::Deck memory_deck(const std::vector<std::string>& overrides) {
  return config::parse(
      "model: {kind: gpt, layers: 8, hidden: 1024, heads: 16, sequence: 1024, "
      "vocab: 50257}\n"
      "data: {train: none}\n"
      "batch: {micro: 2, global: 128}\n"
      "checkpoint: {async: false}\n",
      "deck", {.overrides = overrides});
}

double estimated_bytes(const config::Deck& deck) {
  Workloads workloads(deck);
  return MemoryModel()
      .of(machine_of(AttentionKind::fused), workloads, deck, split_of(deck))
      .total();
}

class LayoutMemoryOf : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(LayoutMemoryOf, IsThePlansWithinAFewPercent) {
  const config::Deck deck = memory_deck(GetParam());
  const double planned = planned_bytes(deck);
  EXPECT_NEAR(estimated_bytes(deck), planned, 0.03 * planned);
}

// A run looks for an order of its passes, which keeps less than the rule's.
TEST(LayoutMemoryZeroBubble, IsNoLessThanThePlans) {
  const config::Deck deck =
      memory_deck({"parallel.pipeline=4", "parallel.stages=[2, 2, 2, 2]",
                   "parallel.schedule=zero_bubble"});
  const double planned = planned_bytes(deck);
  EXPECT_GE(estimated_bytes(deck), planned);
  EXPECT_LE(estimated_bytes(deck), 1.1 * planned);
}

using Overrides = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    LayoutMemoryLayouts, LayoutMemoryOf,
    ::testing::Values(
        Overrides{}, Overrides{"precision.compute=bf16", "memory.recompute=full"},
        Overrides{"parallel.tensor=4", "memory.recompute=selective"},
        Overrides{"parallel.tensor=4", "parallel.sequence=true"},
        Overrides{"parallel.data=8", "parallel.zero=1", "precision.compute=bf16"},
        Overrides{"parallel.data=8", "parallel.zero=2", "precision.compute=bf16"},
        Overrides{"parallel.data=8", "parallel.zero=3", "precision.compute=bf16"},
        Overrides{"parallel.data=4", "parallel.zero=3"},
        Overrides{"parallel.pipeline=4", "parallel.zero=0"},
        Overrides{"parallel.pipeline=4", "parallel.stages=[2, 2, 2, 2]",
                  "precision.compute=bf16", "memory.recompute=full"},
        Overrides{"parallel.pipeline=2", "parallel.virtual_pipeline=4",
                  "parallel.stages=[1, 1, 1, 1, 1, 1, 1, 1]"},
        Overrides{"parallel.pipeline=4", "parallel.stages=[2, 2, 2, 2]",
                  "parallel.schedule=gpipe", "memory.recompute=full"},
        Overrides{"parallel.pipeline=2", "parallel.stages=[4, 4]",
                  "memory.recompute=full", "memory.recompute_layers=2"}));

// 5 a s^2 b bytes a layer in 16 bits (Korthikanti et al. 2022, section 4.1), shared by
// the tensor ranks.
TEST(LayoutMemoryScores, AreKeptWhereTheyAreWritten) {
  const test::Case plain{.layers = 4,
                         .hidden = 256,
                         .heads = 8,
                         .sequence = 512,
                         .tensor = 2,
                         .micro = 3,
                         .global = 3,
                         .recompute = "none"};
  const config::Deck deck = test::deck_of(plain);
  Workloads workloads(deck);
  const auto activations = [&](AttentionKind attention) {
    return MemoryModel()
        .of(machine_of(attention), workloads, deck, split_of(deck))
        .activations;
  };
  EXPECT_DOUBLE_EQ(
      activations(AttentionKind::materialised) - activations(AttentionKind::fused),
      4 * 5.0 * 8 * 512 * 512 * 3 / 2);
}

}  // namespace
}  // namespace trireme::plan

// What small models say of large ones: pieces, layers and micro-batches add up to the
// whole step's tally, exactly.
#include "plan/workload.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "config/load.hpp"
#include "plan/counts.hpp"
#include "plan/deck_memory.hpp"
#include "plan/performance_model.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan {
namespace {

config::Deck whole_deck(const std::vector<std::string>& overrides, int ranks) {
  return config::parse(
      "model: {kind: gpt, layers: 9, hidden: 64, heads: 4, sequence: 32, vocab: 1000}\n"
      "data: {train: none}\n"
      "batch: {micro: 2, global: 10}\n",
      "deck", {.overrides = overrides, .ranks = ranks});
}

// The sum of the workload's parts, for a stage of a deck of one chunk a stage.
Tally summed(Workloads& workloads, const config::Deck& deck, int stage) {
  const Workload& workload = workloads.of(workload_key(deck));
  const schedule::PipelineShape shape = pipeline_shape(deck);
  const Workload::Chunk& chunk = workload.chunk(place_of(shape, stage));
  const index_t layers = split_of(deck).at(extent(stage));
  const auto passes = [](const PassWork& work) {
    return work.forward + work.backward + work.backward_weight;
  };
  const Tally of_microbatch =
      passes(chunk.own.passes) + layers * passes(workload.layer.passes) + chunk.around;
  return shape.microbatches * of_microbatch + chunk.own.step +
         layers * workload.layer.step;
}

Tally planned(const config::Deck& deck, int stage) {
  const step::Sharing shared = step::sharing(deck);
  const auto replica =
      step::make_replica(deck, planned_groups(deck.parallel, stage), shared);
  const step::StepShape shape = step::step_shape(deck);
  return replica->plan_step(shape, {shared.pipeline, replica->part().blueprint, shape})
      .tally;
}

// Labels with FLOPs and bytes, shapes with calls, sites with elements.
std::map<std::string, double> amounts(const Tally& tally) {
  std::map<std::string, double> all;
  for (const KernelTally& kernel : tally.kernels()) {
    all[fmt::format("{} flops", kernel.label)] += kernel.cost.flops;
    all[fmt::format("{} bytes", kernel.label)] += as_double(kernel.cost.bytes);
  }
  for (const ProductTally& product : tally.products()) {
    const ProductShape& shape = product.shape;
    all[fmt::format("product {} x {} x {} {}{}", shape.m, shape.n, shape.k,
                    shape.transpose_a, shape.transpose_b)] += as_double(product.calls);
  }
  for (const MessageTally& message : tally.messages()) {
    all[fmt::format("{} {} {}", message.axis, message.site, message.operation)] +=
        as_double(message.elements);
  }
  return all;
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
    EXPECT_EQ(amounts(summed(workloads, deck, stage)), amounts(planned(deck, stage)))
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
  const PassWork& whole = workloads.of(workload_key(plain)).layer.passes;
  EXPECT_EQ(whole.backward_weight.total().cost.flops, 0.0);
  EXPECT_DOUBLE_EQ(whole.backward.total().cost.flops,
                   2.0 * whole.forward.total().cost.flops);
  const config::Deck split =
      whole_deck({"parallel.pipeline=3", "parallel.schedule=zero_bubble"}, 3);
  const PassWork& parts = workloads.of(workload_key(split)).layer.passes;
  EXPECT_GT(parts.backward_weight.total().cost.flops, 0.0);
  EXPECT_DOUBLE_EQ(
      parts.backward.total().cost.flops + parts.backward_weight.total().cost.flops,
      whole.backward.total().cost.flops);
}

}  // namespace
}  // namespace trireme::plan

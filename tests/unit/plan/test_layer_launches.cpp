// What a layer launches on a GPU in a step of every kind of model, alone and with tensor
// ranks: by the plans of steps, through the kernels that a CUDA build chooses.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/tally.hpp"
#include "plan/deck_memory.hpp"
#include "step/deck_model.hpp"
#include "step/replica.hpp"

namespace trireme::plan {
namespace {

struct Case {
  std::string name, model;
  std::vector<std::string> overrides;
  index_t layers;  // that a count more of model.layers is
  index_t most;    // launches of one, forward and backward
};
void PrintTo(const Case& of, std::ostream* out) {
  *out << of.name;
}

// A step of one micro-batch, without what there is once a step.
std::map<std::string, index_t> launches_of(const Case& of, int layers) {
  std::vector<std::string> overrides = of.overrides;
  overrides.push_back("model.layers=" + std::to_string(layers));
  const config::Deck deck = config::parse(
      "model: {" + of.model +
          ", hidden: 256, heads: 4, sequence: 128, vocab: 1000}\n"
          "data: {train: none}\n"
          "batch: {micro: 2, global: 2}\n"
          "precision: {compute: bf16}\n",
      "deck", {.overrides = overrides});
  const step::Sharing shared = step::sharing(deck);
  const step::StepShape shape = step::step_shape(deck);
  const step::PipelinePlans plans(shared.pipeline, model::make_blueprint(deck.model),
                                  shape);
  const auto replica =
      step::make_replica(deck, planned_groups(deck.parallel, 0), shared);
  std::map<std::string, index_t> launches;
  for (const KernelTally& kernel : replica->plan_step(shape, plans).tally.kernels()) {
    launches[kernel.label] += kernel.calls;
  }
  return launches;
}

class LayerLaunchesOf : public ::testing::TestWithParam<Case> {};

TEST_P(LayerLaunchesOf, AreFew) {
  const auto fewer = launches_of(GetParam(), 2);
  std::string said;
  index_t more = 0;
  for (const auto& [label, calls] : launches_of(GetParam(), 3)) {
    const auto before = fewer.find(label);
    const index_t own = calls - (before == fewer.end() ? 0 : before->second);
    if (own != 0) said += label + " " + std::to_string(own) + "\n";
    more += own;
  }
  EXPECT_EQ(more, GetParam().layers * GetParam().most) << said;
}

const char* const kGpt = "kind: gpt";
INSTANTIATE_TEST_SUITE_P(
    LayerLaunches, LayerLaunchesOf,
    ::testing::Values(
        Case{"gpt", kGpt, {}, 1, 23}, Case{"gpt_dropout", kGpt, {"model.dropout=0.1", "model.attention_dropout=0.1"}, 1, 24},
        Case{"gpt_tensor", kGpt, {"parallel.tensor=2"}, 1, 24},
        Case{"gpt_sequence", kGpt, {"parallel.tensor=2", "parallel.sequence=true"}, 1, 24},
        Case{"gpt_selective", kGpt, {"memory.recompute=selective"}, 1, 24},
        Case{"bert", "kind: bert", {}, 1, 24}, Case{"t5", "kind: t5", {}, 2, 24}));

}  // namespace
}  // namespace trireme::plan

// What a layer launches on a GPU in a step of every kind of model, alone and with tensor
// ranks: by the plans of steps, through the kernels that a CUDA build chooses.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/tally.hpp"
#include "config/load.hpp"
#include "unit/plan/planned_tally.hpp"

namespace trireme::plan {
namespace {

struct LayerCase {
  std::string name, model;
  std::vector<std::string> overrides;
  index_t launches;  // of what one more of model.layers is, forward and backward
};
void PrintTo(const LayerCase& of, std::ostream* out) {
  *out << of.name;
}

// A step of one micro-batch.
std::map<std::string, index_t> launches_of(const LayerCase& of, int layers) {
  std::vector<std::string> overrides = of.overrides;
  overrides.push_back("model.layers=" + std::to_string(layers));
  const config::Deck deck =
      config::parse("model: {" + of.model +
                        ", hidden: 256, heads: 4, sequence: 128, vocab: 1000}\n"
                        "data: {train: none}\n"
                        "batch: {micro: 2, global: 2}\n"
                        "precision: {compute: bf16}\n",
                    "deck", {.overrides = overrides});
  std::map<std::string, index_t> launches;
  const Tally tally = test::planned_tally(deck, 0);
  for (const KernelTally& kernel : tally.kernels()) {
    launches[kernel.label] += kernel.calls;
  }
  return launches;
}

class LayerLaunchesOf : public ::testing::TestWithParam<LayerCase> {};

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
  EXPECT_EQ(more, GetParam().launches) << said;
}

using Overrides = std::vector<std::string>;
const Overrides kNoDropout = {"model.dropout=0", "model.attention_dropout=0"};
const char* const kGpt = "kind: gpt";
INSTANTIATE_TEST_SUITE_P(
    LayerLaunches, LayerLaunchesOf,
    ::testing::Values(
        LayerCase{"gpt", kGpt, {}, 24}, LayerCase{"gpt_no_dropout", kGpt, kNoDropout, 23},
        LayerCase{"gpt_tensor", kGpt, {"parallel.tensor=2"}, 24},
        LayerCase{
            "gpt_sequence", kGpt, {"parallel.tensor=2", "parallel.sequence=true"}, 24},
        LayerCase{"gpt_selective", kGpt, {"memory.recompute=selective"}, 27},
        LayerCase{"bert", "kind: bert", {}, 24},
        LayerCase{"bert_tensor", "kind: bert", {"parallel.tensor=2"}, 24},
        // A layer of the encoder and one of the decoder, which has cross attention, both
        // with the bias.
        LayerCase{"t5", "kind: t5", {}, 68}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::plan

// What a pass on shapes counts is what its blocks say: every FLOP of a whole model,
// forward and backward, of all tensor ranks together.
//
// One thing differs, and is added here: model FLOPs count real words, the
// tally what is computed, and products with the head's words have rows of padding too,
// but for the input's gradient on a host (nn/lm_head.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "comm/planned_communicator.hpp"
#include "gpt_pass.hpp"
#include "support/model_flops.hpp"

namespace trireme::test {
namespace {

constexpr index_t kBatch = 3;
constexpr index_t kSequence = 11;

struct Counted {
  Tally tally;
  index_t vocabulary = 0;  // rows of this rank's slab
};

Counted count(const model::Architecture& config, int tensor_rank, int tensor_size,
              const nn::Recompute& recompute = {},
              model::WeightPass weight_pass = model::WeightPass::now) {
  Gpt<float> gpt(config, comm::make_process_groups(comm::make_planned_communicator(
                                                       tensor_rank, tensor_size, "world"),
                                                   {.tensor = tensor_size}));
  Pass<float> pass(gpt, {.batch = kBatch,
                         .sequence = kSequence,
                         .weight_pass = weight_pass,
                         .recompute = recompute});
  Counted counted;
  pass.count(Exec::shape_only(counted.tally));
  counted.vocabulary = gpt.registry.spec(0).shard.local_shape[0];
  return counted;
}

// Of all ranks of a tensor group.
Counted sum(const model::Architecture& config, int tensor_size,
            const nn::Recompute& recompute = {},
            model::WeightPass weight_pass = model::WeightPass::now) {
  Counted all;
  for (int rank = 0; rank < tensor_size; ++rank) {
    const Counted one = count(config, rank, tensor_size, recompute, weight_pass);
    all.tally += one.tally;
    all.vocabulary += one.vocabulary;
  }
  return all;
}

// Grouped heads, f other than 4 h, heads that are not h / a.
model::Architecture odd_gpt() {
  model::Architecture config = small_gpt();
  config.layers = 3;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 10;
  config.sequence = kSequence;
  return config;
}

void expect_model_flops(const model::Architecture& config, const Counted& counted,
                        double again_full, double again_causal, const std::string& what) {
  ASSERT_EQ(counted.vocabulary % nn::kVocabularyMultiple, 0) << what;
  ASSERT_GT(counted.vocabulary, config.vocab) << what;
  const double padding = static_cast<double>((counted.vocabulary - config.vocab) * 2 *
                                             kBatch * kSequence * config.hidden);
  const double of_padding = (kHostExecution ? 2 : 3) * padding;
  const Cost cost = counted.tally.total().cost;
  using enum model::AttentionCount;
  EXPECT_EQ(cost.flops,
            model_flops(config, kBatch, kSequence, full) + of_padding + again_full)
      << what;
  EXPECT_EQ(cost.flops - cost.masked_flops,
            model_flops(config, kBatch, kSequence, causal) + of_padding + again_causal)
      << what;
}

TEST(GptTally, FlopsAreThoseOfTheBlocks) {
  for (const model::Architecture& config : {small_gpt(), odd_gpt()}) {
    for (const int tensor_size : {1, 2}) {
      for (const auto pass : {model::WeightPass::now, model::WeightPass::later}) {
        expect_model_flops(config, sum(config, tensor_size, {}, pass), 0, 0,
                           "tensor " + std::to_string(tensor_size));
      }
    }
  }
}

TEST(GptTally, SharesOfTheTensorRanksAreEqual) {
  model::Architecture config = odd_gpt();
  config.vocab = 38;  // else the first rank has a word more
  const Counted first = count(config, 0, 2);
  const Counted second = count(config, 1, 2);
  EXPECT_EQ(first.vocabulary, second.vocabulary);
  EXPECT_TRUE((first.tally - second.tally).kernels().empty());
  EXPECT_TRUE((first.tally - second.tally).messages().empty());
}

TEST(GptTally, RecomputedLayersCostOneMoreForwardPass) {
  const model::Architecture config = odd_gpt();
  using enum model::AttentionCount;
  for (const int tensor_size : {1, 2}) {
    expect_model_flops(config, sum(config, tensor_size, {.layers = config.layers}),
                       layers_forward_flops(config, kBatch, kSequence, full),
                       layers_forward_flops(config, kBatch, kSequence, causal),
                       "all layers");
    model::Architecture one = config;
    one.layers = 1;
    expect_model_flops(config, sum(config, tensor_size, {.layers = 1}),
                       layers_forward_flops(one, kBatch, kSequence, full),
                       layers_forward_flops(one, kBatch, kSequence, causal), "one layer");
    // What passes over rows make again is no matrix product, but more bytes.
    const Counted selective = sum(config, tensor_size, {.selective = true});
    expect_model_flops(config, selective, 0, 0, "selective");
    EXPECT_GT(selective.tally.total().cost.bytes,
              sum(config, tensor_size).tally.total().cost.bytes);
  }
}

// Bytes that a layer more costs, forward and backward, outside matrix products and
// attention, in passes over (rows, h).
double passes_of_a_layer(double dropout) {
  constexpr index_t kRowsOfH = 4 * 256 * 64;
  model::Architecture config = small_gpt(dropout);
  config.hidden = 64;
  config.ffn_hidden = 256;
  config.sequence = 256;
  Tally tally[2];
  for (const int i : {0, 1}) {
    config.layers = 1 + i;
    Gpt<float> gpt(config);
    Pass<float> pass(gpt, {.batch = 4, .sequence = 256});
    pass.count(Exec::shape_only(tally[i]));
  }
  index_t bytes = 0;
  const Tally layer = tally[1] - tally[0];
  for (const KernelTally& kernel : layer.kernels()) {
    const std::string_view label = kernel.label;
    if (label.find("gemm") != label.npos || label.find("attention") != label.npos) {
      continue;
    }
    bytes += kernel.cost.bytes;
  }
  return static_cast<double>(bytes) / (4 * kRowsOfH);
}

// Forward: norm 2, QKV's bias 6, residual and norm 4, GeLU 8, residual 3. Backward: mask
// and sums for a bias 2 (1 where nothing is dropped), GeLU 12, sums for a bias 4,
// residual and norm 5 (4), sums for QKV's bias 3, norm 4. Sums over blocks, which are 16
// rows here, are 2 more.
TEST(GptTally, PassesOverTheRowsOfALayer) {
  EXPECT_NEAR(passes_of_a_layer(0.1), 53 + 2, 0.5);
  EXPECT_NEAR(passes_of_a_layer(0.0), 51 + 2, 0.5);
}

// Four sums of activations a layer (Shoeybi et al. 2019), one after the embedding and one
// before the head, and what the loss needs.
TEST(GptTally, MessagesAreCountedBySite) {
  const model::Architecture config = odd_gpt();
  EXPECT_TRUE(count(config, 0, 1).tally.messages().empty()) << "a group of one";
  const Tally tally = count(config, 1, 2).tally;
  index_t sums = 0;
  const index_t activations = kBatch * kSequence * config.hidden;
  for (const MessageTally& message : tally.messages()) {
    EXPECT_EQ(message.axis, "tensor");
    EXPECT_EQ(message.operation, "all_reduce");
    EXPECT_EQ(message.bytes, 4 * message.elements) << message.site;
    if (message.elements == message.calls * activations) sums += message.calls;
  }
  EXPECT_EQ(sums, 4 * config.layers + 2);
}

}  // namespace
}  // namespace trireme::test

// What a pass on shapes counts is what its blocks say: every FLOP of a whole model,
// forward and backward, of all tensor ranks together.
//
// One thing differs, and is added here: model FLOPs count real words, the
// tally what is computed, and products with the head's words have rows of padding too,
// but for the input's gradient on a host (nn/word_loss.cpp).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

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
    const auto is_of = [&](const char* part) { return label.find(part) != label.npos; };
    if (is_of("gemm") || is_of("linear_forward") || is_of("attention")) continue;
    bytes += kernel.cost.bytes;
  }
  return static_cast<double>(bytes) / (4 * kRowsOfH);
}

// Forward: norm 2, residual and norm 4, residual 3 (where nothing is dropped the product
// adds it); where no product does them, as a GPU's do not in fp32, QKV's bias 6, GeLU 12
// and that residual 3. Backward: GeLU 12, residual and norm twice 5 (4), sums for QKV's
// bias 3. Sums over blocks, which are 16 rows here, are 2 more.
TEST(GptTally, PassesOverTheRowsOfALayer) {
  const double of_products = kHostExecution ? 0 : 6 + 12;
  const double residual = kHostExecution ? 0 : 3;
  EXPECT_NEAR(passes_of_a_layer(0.1), 34 + 2 + of_products, 0.5);
  EXPECT_NEAR(passes_of_a_layer(0.0), 29 + 2 + of_products + residual, 0.5);
}

using Kernels = std::vector<KernelTally>;

// These kernels, and no others.
void expect_kernels(const Tally& tally, const Kernels& want, const std::string& what) {
  EXPECT_EQ(tally.kernels().size(), want.size()) << what;
  for (const KernelTally& kernel : want) {
    SCOPED_TRACE(kernel.label + what);
    const std::string label = std::string("trireme::kernels::") + kernel.label;
    const KernelTally found = tally.kernel(label.c_str());
    EXPECT_EQ(found.calls, kernel.calls);
    EXPECT_EQ(found.cost.flops, kernel.cost.flops);
    EXPECT_EQ(found.cost.masked_flops, kernel.cost.masked_flops);
    EXPECT_EQ(found.cost.bytes, kernel.cost.bytes);
  }
}

// What a kernel in single precision costs that passes over these elements.
KernelTally passes(const char* label, index_t elements, index_t calls = 1) {
  return {label, calls, {.bytes = 4 * elements}};
}

constexpr index_t kRows = kBatch * kSequence;
constexpr index_t kBlocks = (kRows + 15) / 16;  // of rows, of which there are sums

// Of products of attention: scores are of all queries with all keys, of which a causal
// mask hides one half.
KernelTally scores(const char* label, const model::Architecture& c, int products,
                   index_t elements) {
  const index_t flops =
      2 * products * kBatch * c.heads * kSequence * kSequence * c.head_size;
  return {label,
          1,
          {.flops = static_cast<double>(flops),
           .masked_flops = static_cast<double>(flops) / 2,
           .bytes = 4 * elements}};
}

// Of a layer before another one, or of the last, whose gradient comes from the head and
// is not taken apart there.
Kernels of_a_layer(const model::Architecture& c, bool drops, bool is_last) {
  const index_t n = kRows, h = c.hidden, f = c.ffn_hidden;
  const index_t q = c.heads * c.head_size, kv = c.kv_heads * c.head_size;
  const index_t qkv = q + 2 * kv, lse = n * c.heads, dropped = drops ? n * h : 0;
  // Each weight is read twice, and its gradient read and written; each input and output
  // of a linear layer is, or its gradient is, an operand three times.
  const index_t weights = h * qkv + q * h + 2 * h * f;
  const index_t ends = (h + qkv) + (q + h) + 2 * (h + f);
  const index_t biases = qkv + h + f + h;
  // Two of the forward products have a bias, one of them an activation beside what it
  // took; where nothing is dropped a third one has a bias and a residual.
  const index_t fused = n * h * (qkv + f), with_residual = drops ? 0 : n * f * h;
  Kernels kernels = {
      passes("layer_norm_forward", 2 * n * h + 2 * h + 2 * n),
      {"gemm",
       drops ? 10 : 9,
       {.flops = static_cast<double>(6 * n * weights - 2 * (fused + with_residual)),
        .bytes = 4 * (3 * n * ends - n * (h + qkv + h + f) + 4 * weights - h * (qkv + f) -
                      (drops ? 0 : n * (f + h) + f * h))}},
      {"linear_forward[fused]",
       drops ? 2 : 3,
       {.flops = static_cast<double>(2 * (fused + with_residual)),
        .bytes = 4 * (n * (h + qkv) + h * qkv + qkv + n * (h + 2 * f) + h * f + f +
                      (drops ? 0 : n * (f + 2 * h) + f * h + h))}},
      scores("attention_forward", c, 2, 2 * n * (q + kv) + lse),
      passes("residual_norm_forward", 4 * n * h + 3 * h + 2 * n),
      passes("gelu_backward", 3 * n * f + kBlocks * f),
      passes("add_partials", (kBlocks + 2) * (biases + 4 * h), 1),
      passes("residual_norm_backward",
             (is_last ? 1 : 2) * (4 * n * h + dropped + h + 2 * n + kBlocks * 3 * h),
             is_last ? 1 : 2),
      passes("attention_backward[delta]", 2 * n * q + lse),
      scores("attention_backward", c, 4, 3 * n * q + 4 * n * kv + 2 * lse),
      passes("sum_row_blocks", n * qkv + kBlocks * qkv),
  };
  if (drops) kernels.push_back(passes("bias_dropout_add_forward", 3 * n * h + h));
  if (is_last) {
    kernels.push_back(passes("bias_dropout_add_backward", n * h + dropped + kBlocks * h));
    kernels.push_back(
        passes("layer_norm_backward", 4 * n * h + h + 2 * n + kBlocks * 2 * h));
  }
  return kernels;
}

// The embedding, and the head with its loss, whose slab of words has rows of padding.
Kernels of_the_ends(const model::Architecture& c, index_t slab, bool drops) {
  const index_t n = kRows, h = c.hidden, v = c.vocab;
  const index_t positions = kSequence * h;
  Kernels kernels = {
      passes("embedding_dropout_forward", 2 * n + n * h + positions + n * h),
      passes("layer_norm_forward", 2 * n * h + 2 * h + 2 * n),
      {"gemm",
       3,
       {.flops = static_cast<double>(2 * n * h * (2 * slab + v)),
        .bytes = 4 * ((n * h + slab * h + n * slab) + (n * v + v * h + n * h) +
                      (n * slab + n * h + 2 * slab * h))}},
      passes("cross_entropy_in_place", 2 * n * slab + 5 * n),
      passes("cross_entropy_loss", 5 * n + 2 * 2 * 2),  // two sums of double
      passes("layer_norm_backward_input", 3 * n * h + h + 2 * n),
      passes("layer_norm_backward_weight[blocks]", 2 * n * h + 2 * n + kBlocks * 2 * h),
      passes("layer_norm_backward_weight[combine]", (kBlocks + 2) * 2 * h),
      passes("embedding_backward[columns]",
             (n + n * h + 2 * n * h) + (n + n * h + 2 * positions), 2)};
  if (drops) kernels.push_back(passes("dropout_backward", 2 * n * h));
  return kernels;
}

// To the byte, of a host's kernels. Labels of a device's differ.
TEST(GptTally, EachKernelCountsWhatItMust) {
  if (!kHostExecution) GTEST_SKIP();
  for (const double dropout : {0.1, 0.0}) {
    model::Architecture config = odd_gpt();
    config.dropout = config.attention_dropout = dropout;
    config.layers = 1;
    const Counted one = count(config, 0, 1);
    config.layers = 2;
    const Tally layer = count(config, 0, 1).tally - one.tally;
    const bool drops = dropout > 0;
    const std::string what = drops ? " with dropout" : " without dropout";
    expect_kernels(layer, of_a_layer(config, drops, false), what);
    Tally whole;
    for (const KernelTally& kernel : of_the_ends(config, one.vocabulary, drops)) {
      whole.add(kernel);
    }
    for (const KernelTally& kernel : of_a_layer(config, drops, true)) whole.add(kernel);
    expect_kernels(one.tally, whole.kernels(), what);
  }
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

// What a layer launches on a GPU: counted by a pass on shapes through the kernels that a
// CUDA build chooses, which this program links in the place of the host's
// (TRIREME_CUDA_KERNEL_SOURCES). No device is there: what would touch one fails.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "gpt_pass.hpp"
#include "kernels/attention.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/narrow_gemm.hpp"

namespace trireme::test {
namespace {

using Launches = std::map<std::string, index_t>;

struct Passes {
  Launches forward, backward;
};

Launches launches_of(const Tally& tally) {
  const std::string prefix = "trireme::kernels::";
  Launches launches;
  for (const KernelTally& kernel : tally.kernels()) {
    std::string label = kernel.label;
    if (label.starts_with(prefix)) label.erase(0, prefix.size());
    launches[label] += kernel.calls;
  }
  return launches;
}

index_t sum_of(const Launches& launches) {
  index_t sum = 0;
  for (const auto& [label, calls] : launches) sum += calls;
  return sum;
}

// Of three layers less those of two: a layer between others.
Passes launches_of_a_layer(double dropout, index_t head_size) {
  model::Architecture config = small_gpt(dropout);
  config.heads = config.kv_heads = 2;
  config.hidden = 2 * head_size;
  config.ffn_hidden = 4 * config.hidden;
  config.sequence = 128;
  Tally forward[2], backward[2];
  for (const int i : {0, 1}) {
    config.layers = 2 + i;
    Gpt<bf16> gpt(config);
    Pass<bf16> pass(gpt, {.batch = 2, .sequence = 128});
    pass.count(Exec::shape_only(forward[i]), Exec::shape_only(backward[i]));
  }
  return {launches_of(forward[1] - forward[0]), launches_of(backward[1] - backward[0])};
}

// This program has a GPU's kernels, or its counts are of nothing.
TEST(CudaLaunches, KernelsAreThoseOfAGpu) {
  EXPECT_EQ(kernels::product_instructions(Exec::shape_only(), DType::bfloat16),
            "tensor cores");
  using kernels::impl::AttentionWay;
  EXPECT_TRUE(
      kernels::impl::has_attention_way(DType::bfloat16, AttentionWay::tensor_cores));
  EXPECT_FALSE(kernels::impl::has_attention_way(DType::bfloat16, AttentionWay::vectors));
}

kernels::impl::AttentionWay way_of(const kernels::AttentionDesc& desc) {
  return kernels::impl::attention_way(Exec::shape_only(), DType::bfloat16, desc);
}

// Attention of BERT and T5, with padding among keys and queries, with documents in both
// directions and with a bias by distance, as far as T5 has such heads; others take the
// plain tiles.
TEST(CudaLaunches, TensorCoresTakeAttentionOfBertAndT5) {
  using kernels::MaskKind, kernels::impl::AttentionWay;
  const std::int32_t length = 7;
  for (const MaskKind mask : {MaskKind::none, MaskKind::causal, MaskKind::padding,
                              MaskKind::document, MaskKind::segment}) {
    for (const index_t head_dim : {64, 80, 96, 128}) {
      kernels::AttentionDesc desc{
          .q_length = 100, .kv_length = 130, .head_dim = head_dim, .mask = mask};
      desc.query_lengths = &length;
      EXPECT_EQ(way_of(desc), AttentionWay::tensor_cores);
      desc.has_bias = true;
      const bool has_bias = head_dim == 64 || head_dim == 128;
      EXPECT_EQ(way_of(desc),
                has_bias ? AttentionWay::tensor_cores : AttentionWay::reference)
          << head_dim;
    }
  }
}

const Launches kBackward = {{"add_partials", 1},
                            {"attention_backward", 1},
                            {"attention_backward[delta]", 1},
                            {"gelu_backward", 1},
                            {"gemm", 8},
                            {"residual_norm_backward", 2},
                            {"sum_row_blocks", 1}};

TEST(CudaLaunches, OfALayerWithDropout) {
  const auto [forward, backward] = launches_of_a_layer(0.1, 64);
  EXPECT_EQ(forward, (Launches{{"apply_epilogue", 1},
                               {"attention_forward", 1},
                               {"bias_dropout_add_forward", 1},
                               {"gemm", 2},
                               {"layer_norm_forward", 1},
                               {"linear_forward[fused]", 2},
                               {"residual_norm_forward", 1}}));
  EXPECT_EQ(backward, kBackward);
  EXPECT_EQ(sum_of(forward) + sum_of(backward), 24);
}

// The last product of a layer adds its residual.
TEST(CudaLaunches, OfALayerWithoutDropout) {
  const auto [forward, backward] = launches_of_a_layer(0.0, 64);
  EXPECT_EQ(forward, (Launches{{"apply_epilogue", 1},
                               {"attention_forward", 1},
                               {"gemm", 1},
                               {"layer_norm_forward", 1},
                               {"linear_forward[fused]", 3},
                               {"residual_norm_forward", 1}}));
  EXPECT_EQ(backward, kBackward);
  EXPECT_EQ(sum_of(forward) + sum_of(backward), 23);
}

// A token of so many texts, whatever their lengths are.
// Joined: layers are one launch where that is had.
Launches launches_of_a_token(index_t layers, index_t texts, bool joined = false,
                             index_t ffn_hidden = 640) {
  constexpr index_t kCapacity = 100;
  model::Architecture config = small_gpt();
  config.layers = layers;
  config.hidden = 160;
  config.ffn_hidden = ffn_hidden;
  Gpt<bf16> gpt(config);
  model::DecodeState<bf16> state;
  for (const index_t columns : gpt.chunk.cache_columns()) {
    const View2<bf16> cache(nullptr, extent(texts * kCapacity), extent(columns));
    state.caches.push_back(
        {.k = cache,
         .v = cache,
         .texts = {.count = texts, .capacity = kCapacity, .longest = kCapacity}});
  }
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  if (joined) gpt.chunk.join_layers(exec, kCapacity, state);
  constexpr std::size_t kBytes = 1 << 20;
  const Kokkos::View<std::byte*, DeviceMemory> memory("memory", kBytes);
  Arena saved, scratch(memory.data(), kBytes), held;
  BatchSpec spec = gpt.blueprint.batch;
  spec.streams[0].sequence = 1;
  const nn::MicroBatch batch(spec, texts);
  const nn::Context context{.exec = exec,
                            .groups = gpt.groups,
                            .step = kernels::StepStateView(nullptr),
                            .saved = &saved,
                            .scratch = scratch,
                            .held = held,
                            .batch = batch,
                            .mode = nn::Mode::evaluation};
  gpt.chunk.decode(
      context, state,
      View2<bf16>(nullptr, extent(texts), extent(gpt.chunk.logit_columns())));
  return launches_of(tally);
}

Launches difference_of(Launches more, const Launches& less) {
  for (const auto& [label, calls] : less) {
    more[label] -= calls;
    if (more[label] == 0) more.erase(label);
  }
  return more;
}

// All layers in one launch for four texts, with embedding and head beside them.
TEST(CudaLaunches, OfATokenInAllLayers) {
  for (const index_t layers : {2, 3}) {
    for (const index_t texts : {1, 4, 16}) {
      const Launches all = launches_of_a_token(layers, texts, true);
      EXPECT_EQ(all.at("decode_layers"), (texts + 3) / 4);
      EXPECT_EQ(sum_of(all), all.at("decode_layers") + 2);
    }
  }
  // Not of rows that a multiprocessor has not the shared memory for.
  EXPECT_FALSE(launches_of_a_token(2, 1, true, 20'000).contains("decode_layers"));
}

// Where layers are not joined. Norm and product of qkv, attention's tiles, these combined
// and the projection, norm and fc1 with GeLU, fc2. Beside the layers: embedding, the last
// norm with the head's product; a draw comes behind them.
TEST(CudaLaunches, OfATokenInALayer) {
  for (const index_t texts : {1, 16}) {
    const Launches beside = launches_of_a_token(2, texts);
    const Launches layer = difference_of(launches_of_a_token(3, texts), beside);
    EXPECT_EQ(layer, (Launches{{"decode_attention[tiles]", 1}, {"decode_linear", 4}}));
    EXPECT_EQ(sum_of(beside) - 2 * sum_of(layer), 2);
  }
}

// More texts than one launch takes: a library's products, with passes beside them.
TEST(CudaLaunches, OfATokenOfManyTextsInALayer) {
  constexpr index_t kTexts = kernels::kDecodeRows + 1;
  const Launches beside = launches_of_a_token(2, kTexts);
  const Launches layer = difference_of(launches_of_a_token(3, kTexts), beside);
  EXPECT_EQ(layer, (Launches{{"append_to_cache", 1},
                             {"apply_epilogue", 1},
                             {"decode_attention[tiles]", 1},
                             {"decode_attention[tiles_combined]", 1},
                             {"gemm", 1},
                             {"layer_norm_forward", 1},
                             {"linear_forward[fused]", 3},
                             {"residual_norm_forward", 1}}));
  EXPECT_EQ(sum_of(layer), 10);
  // Embedding, the last norm, the head's product.
  EXPECT_EQ(sum_of(beside) - 2 * sum_of(layer), 3);
}

// Heads of every size that tensor cores have a kernel for.
TEST(CudaLaunches, OfLayersWithWiderHeads) {
  for (const index_t head_size : {80, 96, 128}) {
    SCOPED_TRACE(head_size);
    const auto [forward, backward] = launches_of_a_layer(0.1, head_size);
    EXPECT_EQ(sum_of(forward), 9);
    EXPECT_EQ(backward, kBackward);
  }
}

}  // namespace
}  // namespace trireme::test

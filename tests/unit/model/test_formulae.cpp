// Parameters and FLOPs, which are sums over blocks, against published numbers, the closed
// formulae of the Megatron papers, and sums over all tensors and matrix products.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "support/model_flops.hpp"

namespace trireme::model {
namespace {

using test::layers_forward_flops;
using test::model_flops;
using test::parameter_count;

Architecture gpt(index_t layers, index_t hidden, index_t heads, index_t sequence,
                 index_t vocabulary) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn_hidden = 4 * hidden,
          .sequence = sequence,
          .vocab = vocabulary};
}

Architecture with(Architecture config, auto change) {
  change(config);
  return config;
}

// Odd in every dimension; grouped heads, f other than 4 h, d other than h / a.
std::vector<Architecture> various() {
  std::vector<Architecture> all = {gpt(12, 768, 12, 1024, 50257), gpt(1, 8, 1, 1, 1),
                                   gpt(3, 48, 4, 32, 211)};
  for (const index_t kv_heads : {1, 2, 6}) {
    Architecture config = gpt(5, 66, 6, 77, 1009);
    config.kv_heads = kv_heads;
    config.ffn_hidden = 173;
    all.push_back(config);
    config.head_size = 19;
    all.push_back(config);
  }
  return all;
}

TEST(FormulaeParameters, OfGpt2AsPublished) {
  EXPECT_EQ(parameter_count(gpt(12, 768, 12, 1024, 50257)), 124439808);
  EXPECT_EQ(parameter_count(gpt(24, 1024, 16, 1024, 50257)), 354823168);
  EXPECT_EQ(parameter_count(gpt(36, 1280, 20, 1024, 50257)), 774030080);
  EXPECT_EQ(parameter_count(gpt(48, 1600, 25, 1024, 50257)), 1557611200);
}

// Narayanan et al. 2021, table 1 (billions), and their formula.
TEST(FormulaeParameters, OfTheMegatronPaper) {
  struct Row {
    index_t layers, hidden, heads;
    double billions;
  };
  for (const Row& row :
       {Row{24, 2304, 24, 1.7}, Row{30, 3072, 32, 3.6}, Row{36, 4096, 32, 7.5},
        Row{40, 6144, 48, 18.4}, Row{48, 8192, 64, 39.1}, Row{60, 10240, 80, 76.1},
        Row{80, 12288, 96, 145.6}, Row{96, 16384, 128, 310.1},
        Row{105, 20480, 128, 529.6}, Row{128, 25600, 160, 1008.0}}) {
    const Architecture c = gpt(row.layers, row.hidden, row.heads, 2048, 51200);
    EXPECT_NEAR(static_cast<double>(parameter_count(c)) / 1e9, row.billions, 0.05);
    const double l = row.layers, h = row.hidden;
    const double paper =
        12 * l * h * h * (1 + 13 / (12 * h) + (51200.0 + 2048) / (12 * l * h)) + 2 * h;
    EXPECT_NEAR(static_cast<double>(parameter_count(c)) / paper, 1, 1e-14);
  }
}

TEST(FormulaeParameters, AreTheSumOverTensors) {
  for (const Architecture& c : various()) {
    const index_t d = c.head_elements();
    const index_t qkv = c.heads * d + 2 * c.kv_heads * d;
    index_t layer = 0;
    layer += c.hidden + c.hidden;                     // first norm
    layer += qkv * c.hidden + qkv;                    // q, k, v
    layer += c.hidden * c.heads * d + c.hidden;       // projection
    layer += c.hidden + c.hidden;                     // second norm
    layer += c.ffn_hidden * c.hidden + c.ffn_hidden;  // fc1
    layer += c.hidden * c.ffn_hidden + c.hidden;      // fc2
    const index_t rest = c.vocab * c.hidden + c.sequence * c.hidden + 2 * c.hidden;
    EXPECT_EQ(parameter_count(c), c.layers * layer + rest);
  }
}

// GPT-2 124M, each variant counted by hand.
TEST(FormulaeParameters, OfVariants) {
  const Architecture gpt2 = gpt(12, 768, 12, 1024, 50257);
  const auto count = [&](auto change) { return parameter_count(with(gpt2, change)); };
  // A head of its own: 50257 x 768.
  EXPECT_EQ(count([](Architecture& c) { c.tie_embeddings = false; }),
            124439808 + 38597376);
  // No table of 1024 x 768.
  EXPECT_EQ(count([](Architecture& c) { c.position = Position::rope; }),
            124439808 - 786432);
  // Per layer 2304 (q, k, v) + 768 (projection) + 3072 + 768 (feed-forward) and 768 of
  // each of its norms; 768 of the last norm.
  EXPECT_EQ(count([](Architecture& c) { c.bias = false; }), 124439808 - 12 * 8448 - 768);
  // 25 norms without a bias of 768.
  EXPECT_EQ(count([](Architecture& c) { c.norm = Norm::rmsnorm; }), 124439808 - 25 * 768);
  EXPECT_EQ(count([](Architecture& c) {
              c.norm = Norm::rmsnorm;
              c.bias = false;
            }),
            124439808 - 12 * 8448 - 768);
  // Per layer one matrix of 3072 x 768 more, and its bias.
  for (const Activation gated : {Activation::swiglu, Activation::geglu}) {
    EXPECT_EQ(count([&](Architecture& c) { c.activation = gated; }),
              124439808 + 12 * (2359296 + 3072));
  }
  for (const Activation plain : {Activation::gelu, Activation::relu}) {
    EXPECT_EQ(count([&](Architecture& c) { c.activation = plain; }), 124439808);
  }
  // Keys and values of 4 heads of 64 in place of 12: 2 x 512 rows of 768, and biases.
  EXPECT_EQ(count([](Architecture& c) { c.kv_heads = 4; }), 124439808 - 12 * 1024 * 769);
  EXPECT_THROW(count([](Architecture& c) { c.position = Position::relative; }), Error);
}

// Published sizes: Llama 2 of 7B and 70B, Llama 3 of 8B (Touvron et al. 2023, Dubey et
// al. 2024).
TEST(FormulaeParameters, OfLlama) {
  const auto llama = [](Architecture config, index_t kv_heads, index_t ffn_hidden) {
    config.kv_heads = kv_heads;
    config.ffn_hidden = ffn_hidden;
    config.norm = Norm::rmsnorm;
    config.activation = Activation::swiglu;
    config.position = Position::rope;
    config.bias = config.tie_embeddings = false;
    return config;
  };
  EXPECT_EQ(parameter_count(llama(gpt(32, 4096, 32, 4096, 32000), 32, 11008)),
            6738415616);
  EXPECT_EQ(parameter_count(llama(gpt(80, 8192, 64, 4096, 32000), 8, 28672)),
            68976648192);
  EXPECT_EQ(parameter_count(llama(gpt(32, 4096, 32, 8192, 128256), 8, 14336)),
            8030261248);
}

// 72 B s L h^2 (1 + s / (6 h) + V / (12 L h)).
TEST(FormulaeFlops, AreThoseOfTheMegatronPaper) {
  for (const Architecture& c :
       {gpt(12, 768, 12, 1024, 50257), gpt(96, 12288, 96, 2048, 51200)}) {
    for (const index_t samples : {1, 17, 1536}) {
      for (const index_t sequence : {1, 256, 2048}) {
        const double l = c.layers, h = c.hidden, b = samples, s = sequence, v = c.vocab;
        const double paper =
            72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
        EXPECT_NEAR(model_flops(c, samples, sequence) / paper, 1, 1e-14);
        EXPECT_EQ(model_flops(c, samples, sequence, AttentionCount::full),
                  model_flops(c, samples, sequence));
      }
    }
  }
  // GPT-3's 175B, one batch of 1536 x 2048, without recomputation: 3.3e18.
  EXPECT_NEAR(model_flops(gpt(96, 12288, 96, 2048, 51200), 1536, 2048),
              72.0 * 1536 * 2048 * 96 * 12288 * 12288 *
                  (1 + 2048 / 73728.0 + 51200 / (12.0 * 96 * 12288)),
              1e4);
}

// Every product of the forward pass written out, each with two more of its size backward;
// with the causal count a query sees half of the keys.
TEST(FormulaeFlops, AreTheSumOverProducts) {
  for (const Architecture& c : various()) {
    for (const bool causal : {false, true}) {
      const index_t samples = 3, sequence = 52;
      const index_t d = c.head_elements(), rows = samples * sequence;
      const auto product = [](index_t m, index_t n, index_t k) {
        return 2.0 * static_cast<double>(m) * static_cast<double>(n) *
               static_cast<double>(k);
      };
      double layer = 0;
      layer += product(rows, c.heads * d, c.hidden);
      layer += 2 * product(rows, c.kv_heads * d, c.hidden);
      const double scores =
          product(sequence, sequence, d) * static_cast<double>(samples * c.heads);
      layer += (causal ? 0.5 : 1.0) * 2 * scores;  // q k^T and p v
      layer += product(rows, c.hidden, c.heads * d);
      layer += product(rows, c.ffn_hidden, c.hidden);
      layer += product(rows, c.hidden, c.ffn_hidden);
      const double forward =
          static_cast<double>(c.layers) * layer + product(rows, c.vocab, c.hidden);
      const auto count = causal ? AttentionCount::causal : AttentionCount::full;
      EXPECT_NEAR(model_flops(c, samples, sequence, count) / (3 * forward), 1, 1e-14);
    }
  }
}

// 96 B s L h^2 (1 + s / (6 h) + V / (16 L h)): the layers' forward pass once more.
TEST(FormulaeFlops, OfFullRecomputation) {
  const Architecture c = gpt(24, 2304, 24, 2048, 51200);
  const double l = 24, h = 2304, b = 8, s = 2048, v = 51200;
  const double paper = 96 * b * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  EXPECT_NEAR((model_flops(c, 8, 2048) + layers_forward_flops(c, 8, 2048)) / paper, 1,
              1e-14);
  const double half = 2 * b * s * s * l * h;  // of scores and values that causality drops
  EXPECT_NEAR(layers_forward_flops(c, 8, 2048) -
                  layers_forward_flops(c, 8, 2048, AttentionCount::causal),
              half, 1e-12 * half);
}

TEST(FormulaeFlops, OfVariants) {
  const Architecture base = gpt(3, 48, 4, 32, 211);
  const double flops = model_flops(base, 2, 32);
  const auto more = [&](auto change) {
    return model_flops(with(base, change), 2, 32) - flops;
  };
  // 3 passes, 2 operations, 64 tokens, 3 layers, 192 x 48: the gate's product.
  EXPECT_DOUBLE_EQ(more([](Architecture& c) { c.activation = Activation::swiglu; }),
                   3.0 * 2 * 64 * 3 * 192 * 48);
  // Keys and values of one head of 12 in place of four.
  EXPECT_DOUBLE_EQ(more([](Architecture& c) { c.kv_heads = 1; }),
                   -3.0 * 2 * 64 * 3 * 2 * 36 * 48);
  // Only matrix products count: these have the same.
  EXPECT_EQ(more([](Architecture& c) {
              c.tie_embeddings = c.bias = false;
              c.norm = Norm::rmsnorm;
              c.position = Position::rope;
            }),
            0.0);
}

}  // namespace
}  // namespace trireme::model

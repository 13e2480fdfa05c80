// Parameters and FLOPs in closed form against published numbers, the formulas of the
// Megatron papers, and sums over all tensors and matrix products.
#include "model/formulae.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::model {
namespace {

GptConfig gpt(index_t layers, index_t hidden, index_t heads, index_t sequence,
              index_t vocabulary) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn_hidden = 4 * hidden,
          .sequence = sequence,
          .vocabulary = vocabulary};
}

// Odd in every dimension; grouped heads, f other than 4 h.
std::vector<GptConfig> various() {
  std::vector<GptConfig> all = {gpt(12, 768, 12, 1024, 50257), gpt(1, 8, 1, 1, 1),
                                gpt(3, 48, 4, 32, 211)};
  for (const index_t kv_heads : {1, 2, 6}) {
    GptConfig config = gpt(5, 66, 6, 77, 1009);
    config.kv_heads = kv_heads;
    config.ffn_hidden = 173;
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
    const GptConfig c = gpt(row.layers, row.hidden, row.heads, 2048, 51200);
    EXPECT_NEAR(static_cast<double>(parameter_count(c)) / 1e9, row.billions, 0.05);
    const double l = row.layers, h = row.hidden;
    const double paper =
        12 * l * h * h * (1 + 13 / (12 * h) + (51200.0 + 2048) / (12 * l * h)) + 2 * h;
    EXPECT_NEAR(static_cast<double>(parameter_count(c)) / paper, 1, 1e-14);
  }
}

TEST(FormulaeParameters, AreTheSumOverTensors) {
  for (const GptConfig& c : various()) {
    const index_t d = c.hidden / c.heads;
    const index_t qkv = c.heads * d + 2 * c.kv_heads * d;
    index_t layer = 0;
    layer += c.hidden + c.hidden;                     // first norm
    layer += qkv * c.hidden + qkv;                    // q, k, v
    layer += c.hidden * c.heads * d + c.hidden;       // projection
    layer += c.hidden + c.hidden;                     // second norm
    layer += c.ffn_hidden * c.hidden + c.ffn_hidden;  // fc1
    layer += c.hidden * c.ffn_hidden + c.hidden;      // fc2
    const index_t rest = c.vocabulary * c.hidden + c.sequence * c.hidden + 2 * c.hidden;
    EXPECT_EQ(parameter_count(c), c.layers * layer + rest);
  }
}

// 72 B s L h^2 (1 + s / (6 h) + V / (12 L h)).
TEST(FormulaeFlops, AreThoseOfTheMegatronPaper) {
  for (const GptConfig& c :
       {gpt(12, 768, 12, 1024, 50257), gpt(96, 12288, 96, 2048, 51200)}) {
    for (const index_t samples : {1, 17, 1536}) {
      for (const index_t sequence : {1, 256, 2048}) {
        const double l = c.layers, h = c.hidden, b = samples, s = sequence,
                     v = c.vocabulary;
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
  for (const GptConfig& c : various()) {
    for (const bool causal : {false, true}) {
      const index_t samples = 3, sequence = 52;
      const index_t d = c.hidden / c.heads, rows = samples * sequence;
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
          static_cast<double>(c.layers) * layer + product(rows, c.vocabulary, c.hidden);
      const auto count = causal ? AttentionCount::causal : AttentionCount::full;
      EXPECT_NEAR(model_flops(c, samples, sequence, count) / (3 * forward), 1, 1e-14);
    }
  }
}

}  // namespace
}  // namespace trireme::model

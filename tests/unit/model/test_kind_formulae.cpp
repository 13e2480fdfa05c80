// Sizes and FLOPs of BERT and T5: parameters as Hugging Face counts them for the
// published models, products and attention of a sample by hand.
#include <gtest/gtest.h>

#include "model/blueprint.hpp"

namespace trireme::model {
namespace {

Architecture bert(index_t layers, index_t hidden, index_t heads, index_t vocabulary) {
  return {.kind = ModelKind::bert,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .ffn_hidden = 4 * hidden,
          .sequence = 512,
          .vocab = vocabulary,
          .activation = Activation::gelu,
          .type_vocab_size = 2,
          .binary_head = true,
          .max_predictions = 77};
}

Architecture t5(index_t layers, index_t hidden, index_t heads, index_t head_size,
                index_t ffn_hidden) {
  return {.kind = ModelKind::t5,
          .layers = layers,
          .decoder_layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .head_size = head_size,
          .ffn_hidden = ffn_hidden,
          .sequence = 512,
          .decoder_sequence = 114,
          .vocab = 32128,
          .norm = Norm::rmsnorm,
          .activation = Activation::relu,
          .position = Position::relative,
          .bias = false};
}

index_t parameters(const Architecture& architecture) {
  return make_blueprint(architecture).parameter_count();
}

// BertForPreTraining of bert-base-uncased; the norm behind the embedding and the one at
// the end have the same size.
TEST(KindFormulae, ParametersOfBert) {
  Architecture base = bert(12, 768, 12, 30522);
  EXPECT_EQ(parameters(base), 110106428);
  base.norm_placement = config::NormPlacement::post;
  EXPECT_EQ(parameters(base), 110106428);
  base.binary_head = false;
  EXPECT_EQ(parameters(base), 110106428 - 769 * 768 - 769 * 2);
  base.type_vocab_size = 0;
  EXPECT_EQ(parameters(base), 110106428 - 769 * 768 - 769 * 2 - 2 * 768);
}

// T5ForConditionalGeneration of t5-small ... t5-11b, and of t5-v1_1-small.
TEST(KindFormulae, ParametersOfT5) {
  EXPECT_EQ(parameters(t5(6, 512, 8, 64, 2048)), 60506624);
  EXPECT_EQ(parameters(t5(12, 768, 12, 64, 3072)), 222903552);
  EXPECT_EQ(parameters(t5(24, 1024, 16, 64, 4096)), 737668096);
  EXPECT_EQ(parameters(t5(24, 1024, 32, 128, 16384)), 2851598336);
  EXPECT_EQ(parameters(t5(24, 1024, 128, 128, 65536)), 11307321344);
  Architecture small = t5(8, 512, 6, 64, 1024);
  small.activation = Activation::geglu_tanh;
  small.tie_embeddings = false;
  EXPECT_EQ(parameters(small), 76961152);
}

// A forward pass over a sample: products of all positions, attention of all pairs,
// logits of the predicted positions alone.
TEST(KindFormulae, FlopsOfBert) {
  const Blueprint blueprint = make_blueprint(bert(12, 768, 12, 30522));
  const double s = 512, p = 77, h = 768;
  const double layers = 12 * (s * 2 * 12 * h * h + 4 * s * s * h);
  const double heads = p * 2 * (h * h + h * 30522) + 2 * (h * h + 2 * h);
  EXPECT_DOUBLE_EQ(blueprint.model_flops(), 3 * (layers + heads));
  EXPECT_DOUBLE_EQ(blueprint.model_flops(AttentionCount::causal), 3 * (layers + heads));
}

// The decoder's keys and values of the source are products of the source's positions.
TEST(KindFormulae, FlopsOfT5) {
  const Blueprint blueprint = make_blueprint(t5(6, 512, 8, 64, 2048));
  const double s = 512, t = 114, h = 512, inner = 512, f = 2048;
  const double encoder = s * 2 * (4 * h * inner + 2 * h * f) + 4 * s * s * inner;
  const double decoder = t * 2 * (6 * h * inner + 2 * h * f) + s * 2 * 2 * h * inner +
                         4 * t * t * inner + 4 * t * s * inner;
  const double logits = t * 2 * h * 32128;
  EXPECT_DOUBLE_EQ(blueprint.model_flops(), 3 * (6 * (encoder + decoder) + logits));
}

}  // namespace
}  // namespace trireme::model

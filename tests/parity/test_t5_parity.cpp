// T5 against Hugging Face's (v1.0: ReLU, tied head; v1.1: gated GeLU, a head of its own),
// which ran in fp64 (make_t5_fixtures.py): logits, loss, every gradient, and 20 AdamW
// steps.
#include <gtest/gtest.h>

#include "parity/foreign_weights.hpp"
#include "parity/parity_case.hpp"

namespace trireme {
namespace {

void add_stack(const std::string& stack, index_t layers, bool is_gated,
               test::ForeignNames& names) {
  const bool is_decoder = stack == "decoder";
  const auto stacked = [&](const std::string& ours, const std::string& theirs,
                           const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      names[ours + "/weight"].push_back(theirs + part + ".weight");
    }
  };
  stacked(stack + "/relative_bias", stack + ".block.0.layer.0.SelfAttention.",
          {"relative_attention_bias"});
  for (index_t i = 0; i < layers; ++i) {
    const std::string ours = fmt::format("{}/layers/{}/", stack, i);
    const std::string theirs = fmt::format("{}.block.{}.layer.", stack, i);
    const std::string mlp = theirs + (is_decoder ? "2." : "1.");
    stacked(ours + "input_norm", theirs + "0.", {"layer_norm"});
    stacked(ours + "attention/qkv", theirs + "0.SelfAttention.", {"q", "k", "v"});
    stacked(ours + "attention/projection", theirs + "0.SelfAttention.", {"o"});
    if (is_decoder) {
      stacked(ours + "cross_norm", theirs + "1.", {"layer_norm"});
      stacked(ours + "cross/q", theirs + "1.EncDecAttention.", {"q"});
      stacked(ours + "cross/kv", theirs + "1.EncDecAttention.", {"k", "v"});
      stacked(ours + "cross/projection", theirs + "1.EncDecAttention.", {"o"});
    }
    stacked(ours + "mlp_norm", mlp, {"layer_norm"});
    const std::vector<std::string> gated = {"wi_0", "wi_1"}, plain = {"wi"};
    stacked(ours + "mlp/fc1", mlp + "DenseReluDense.", is_gated ? gated : plain);
    stacked(ours + "mlp/fc2", mlp + "DenseReluDense.", {"wo"});
  }
}

test::ForeignNames names_of(const model::Architecture& a) {
  test::ForeignNames names;
  names["embedding/word/weight"] = {"shared.weight"};
  add_stack("encoder", a.layers, a.is_gated(), names);
  add_stack("decoder", a.decoder_layers, a.is_gated(), names);
  names["encoder/final_norm/weight"] = {"encoder.final_layer_norm.weight"};
  names["final_norm/weight"] = {"decoder.final_layer_norm.weight"};
  names["head/word/weight"] = {"lm_head.weight"};
  return names;
}

test::ParityFixture t5(const std::string& name) {
  const std::string directory = test::parity_fixture(name);
  const io::SafetensorsReader oracle(directory + "/oracle.safetensors");
  const auto config = test::foreign_config(directory);
  const Shape source = oracle.at("source").shape;
  const bool is_gated = config.at("feed_forward_proj") == "gated-gelu";
  const model::Architecture architecture{
      .kind = model::ModelKind::t5,
      .layers = config.at("num_layers"),
      .decoder_layers = config.at("num_decoder_layers"),
      .hidden = config.at("d_model"),
      .heads = config.at("num_heads"),
      .kv_heads = config.at("num_heads"),
      .head_size = config.at("d_kv"),
      .ffn_hidden = config.at("d_ff"),
      .sequence = source[2],
      .decoder_sequence = oracle.at("target").shape[2],
      .vocab = config.at("vocab_size"),
      .norm = model::Norm::rmsnorm,
      .activation = is_gated ? model::Activation::geglu_tanh : model::Activation::relu,
      .position = model::Position::relative,
      .bias = false,
      .tie_embeddings = config.value("tie_word_embeddings", true),
      .norm_epsilon = config.at("layer_norm_epsilon"),
      .relative_attention_num_buckets = config.at("relative_attention_num_buckets"),
      .relative_attention_max_distance = config.at("relative_attention_max_distance")};
  test::ParityFixture fixture{.oracle = directory + "/oracle.safetensors",
                              .blueprint = model::make_blueprint(architecture),
                              .samples = source[1],
                              .batches = source[0]};
  fixture.weights = test::foreign_weights(directory, names_of(architecture));
  fixture.element = test::fields_of_oracle(fixture.blueprint.batch, fixture.oracle);
  return fixture;
}

constexpr const char* kAll[] = {"t5_tiny", "t5_odd", "t5_v11_odd"};

template <class T>
void expect_logits_and_loss(double logit_bound, double loss_bound) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    test::ParityCase<T>(t5(name)).expect_logits_and_loss(logit_bound, loss_bound);
  }
}
template <class T>
void expect_gradients(double bound) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    test::ParityCase<T>(t5(name)).expect_gradients(bound);
  }
}

TEST(T5Parity, LogitsAndLossFloat) {
  expect_logits_and_loss<float>(2e-5, 1e-6);
}
TEST(T5Parity, LogitsAndLossDouble) {
  expect_logits_and_loss<double>(1e-12, 1e-13);
}

TEST(T5Parity, GradientsFloat) {
  expect_gradients<float>(1e-5);
}
TEST(T5Parity, GradientsDouble) {
  expect_gradients<double>(1e-12);
}

TEST(T5Parity, TrainingFloat) {
  test::ParityCase<float>(t5("t5_tiny")).expect_training(1e-5);
}
TEST(T5Parity, TrainingDouble) {
  test::ParityCase<double>(t5("t5_tiny")).expect_training(1e-11);
}

}  // namespace
}  // namespace trireme

// BERT against Hugging Face's BERT (norms behind the sums) and MegatronBert (before the
// branches), which ran in fp64 (make_bert_fixtures.py): logits of masked words, both
// losses, every gradient, and 20 AdamW steps.
#include <gtest/gtest.h>

#include "parity/foreign_weights.hpp"
#include "parity/parity_case.hpp"

namespace trireme {
namespace {

// Ours, and Hugging Face's that are stacked to it.
test::ForeignNames names_of(bool is_post, index_t layers) {
  test::ForeignNames names;
  const auto both = [&](const std::string& ours, const std::vector<std::string>& theirs) {
    for (const char* part : {"weight", "bias"}) {
      for (const std::string& one : theirs) {
        names[ours + "/" + part].push_back(one + "." + part);
      }
    }
  };
  const std::string words = "bert.embeddings.";
  names["embedding/word/weight"] = {words + "word_embeddings.weight"};
  names["embedding/position/weight"] = {words + "position_embeddings.weight"};
  names["embedding/type/weight"] = {words + "token_type_embeddings.weight"};
  if (is_post) both("embedding/norm", {words + "LayerNorm"});
  for (index_t i = 0; i < layers; ++i) {
    const std::string ours = fmt::format("layers/{}/", i);
    const std::string theirs = fmt::format("bert.encoder.layer.{}.", i);
    const std::string self = theirs + "attention.self.";
    both(ours + "attention/qkv", {self + "query", self + "key", self + "value"});
    both(ours + "attention/projection", {theirs + "attention.output.dense"});
    both(ours + "mlp/fc1", {theirs + "intermediate.dense"});
    both(ours + "mlp/fc2", {theirs + "output.dense"});
    if (is_post) {
      both(ours + "attention_norm", {theirs + "attention.output.LayerNorm"});
      both(ours + "mlp_norm", {theirs + "output.LayerNorm"});
    } else {
      both(ours + "input_norm", {theirs + "attention.ln"});
      both(ours + "mlp_norm", {theirs + "ln"});
    }
  }
  if (!is_post) both("final_norm", {"bert.encoder.ln"});
  both("pair_head/pooler", {"bert.pooler.dense"});
  both("pair_head/classifier", {"cls.seq_relationship"});
  both("masked_head/dense", {"cls.predictions.transform.dense"});
  both("masked_head/norm", {"cls.predictions.transform.LayerNorm"});
  names["masked_head/bias"] = {"cls.predictions.bias"};
  return names;
}

test::ParityFixture bert(const std::string& name) {
  const bool is_post = name.find("pre") == std::string::npos;
  const std::string directory = test::parity_fixture(name);
  const io::SafetensorsReader oracle(directory + "/oracle.safetensors");
  const auto config = test::foreign_config(directory);
  const Shape tokens = oracle.at("tokens").shape;
  const index_t layers = config.at("num_hidden_layers");
  const index_t heads = config.at("num_attention_heads");
  test::ParityFixture fixture{
      .oracle = directory + "/oracle.safetensors",
      .blueprint = model::make_blueprint(
          {.kind = model::ModelKind::bert,
           .layers = layers,
           .hidden = config.at("hidden_size"),
           .heads = heads,
           .kv_heads = heads,
           .ffn_hidden = config.at("intermediate_size"),
           .sequence = tokens[2],
           .vocab = config.at("vocab_size"),
           .activation = model::Activation::gelu,
           .norm_epsilon = config.at("layer_norm_eps"),
           .norm_placement =
               is_post ? config::NormPlacement::post : config::NormPlacement::pre,
           .type_vocab_size = config.at("type_vocab_size"),
           .binary_head = true,
           .max_predictions = oracle.at("masked_positions").shape[2]}),
      .samples = tokens[1],
      .batches = tokens[0],
      .logits = "masked_logits"};
  fixture.weights = test::foreign_weights(directory, names_of(is_post, layers));
  fixture.element = test::fields_of_oracle(fixture.blueprint.batch, fixture.oracle);
  return fixture;
}

constexpr const char* kAll[] = {"bert_tiny", "bert_odd", "bert_pre_odd", "bert_pre_tiny"};
constexpr const char* kTrained[] = {"bert_tiny", "bert_pre_tiny"};

template <class T>
void expect_logits_and_loss(double logit_bound, double loss_bound) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    test::ParityCase<T>(bert(name)).expect_logits_and_loss(logit_bound, loss_bound);
  }
}
template <class T>
void expect_gradients(double bound) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    test::ParityCase<T>(bert(name)).expect_gradients(bound);
  }
}
template <class T>
void expect_training(double bound) {
  for (const char* name : kTrained) {
    SCOPED_TRACE(name);
    test::ParityCase<T>(bert(name)).expect_training(bound);
  }
}

TEST(BertParity, LogitsAndLossFloat) {
  expect_logits_and_loss<float>(2e-5, 1e-6);
}
TEST(BertParity, LogitsAndLossDouble) {
  expect_logits_and_loss<double>(1e-12, 1e-13);
}

TEST(BertParity, GradientsFloat) {
  expect_gradients<float>(1e-5);
}
TEST(BertParity, GradientsDouble) {
  expect_gradients<double>(1e-12);
}

TEST(BertParity, TrainingFloat) {
  expect_training<float>(1e-5);
}
TEST(BertParity, TrainingDouble) {
  expect_training<double>(1e-11);
}

}  // namespace
}  // namespace trireme

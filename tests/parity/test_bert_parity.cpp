// BERT against Hugging Face's BERT (norms behind the sums) and MegatronBert (before the
// branches), which ran in fp64 (make_bert_fixtures.py): logits of masked words, both
// losses, every gradient, and 20 AdamW steps.
#include <gtest/gtest.h>

#include "parity/hugging_face_case.hpp"

namespace trireme {
namespace {

test::ParityFixture bert(const std::string& name) {
  const std::string directory = test::parity_fixture(name);
  const std::string oracle = directory + "/oracle.safetensors";
  const io::SafetensorsReader reader(oracle);
  const Shape tokens = reader.at("tokens").shape;
  const auto foreign = test::hugging_face_model(directory);
  model::Architecture architecture = foreign->config();
  architecture.sequence = tokens[2];
  architecture.max_predictions = reader.at("masked_positions").shape[2];
  test::ParityFixture fixture{.oracle = oracle,
                              .blueprint = model::make_blueprint(architecture),
                              .samples = tokens[1],
                              .batches = tokens[0],
                              .logits = "masked_logits"};
  fixture.weights = test::weights_of(foreign);
  fixture.element = test::fields_of_oracle(fixture.blueprint.batch, oracle);
  return fixture;
}

const std::vector<const char*> kAll = {"bert_tiny", "bert_odd", "bert_pre_odd",
                                       "bert_pre_tiny"},
                               kTrained = {"bert_tiny", "bert_pre_tiny"};

TEST(BertParity, LogitsAndLossFloat) {
  test::expect_logits_and_loss<float>(kAll, bert, 2e-5, 1e-6);
}
TEST(BertParity, LogitsAndLossDouble) {
  test::expect_logits_and_loss<double>(kAll, bert, 1e-12, 1e-13);
}

TEST(BertParity, GradientsFloat) {
  test::expect_gradients<float>(kAll, bert, 1e-5);
}
TEST(BertParity, GradientsDouble) {
  test::expect_gradients<double>(kAll, bert, 1e-12);
}

TEST(BertParity, TrainingFloat) {
  test::expect_training<float>(kTrained, bert, 1e-5);
}
TEST(BertParity, TrainingDouble) {
  test::expect_training<double>(kTrained, bert, 1e-11);
}

TEST(BertParity, PaddingTakesNoPart) {
  for (const char* name : {"bert_odd", "bert_pre_odd"}) {
    SCOPED_TRACE(name);
    test::expect_padding_takes_no_part(bert(name), "tokens", "lengths");
  }
}

}  // namespace
}  // namespace trireme

// T5 against Hugging Face's (v1.0: ReLU, tied head; v1.1: gated GeLU, a head of its own),
// which ran in fp64 (make_t5_fixtures.py): logits, loss, every gradient, and 20 AdamW
// steps.
#include <gtest/gtest.h>

#include "parity/hugging_face_case.hpp"

namespace trireme {
namespace {

test::ParityFixture t5(const std::string& name) {
  const std::string directory = test::parity_fixture(name);
  const std::string oracle = directory + "/oracle.safetensors";
  const io::SafetensorsReader reader(oracle);
  const Shape source = reader.at("source").shape;
  const auto foreign = test::hugging_face_model(directory);
  model::Architecture architecture = foreign->config();
  architecture.sequence = source[2];
  architecture.decoder_sequence = reader.at("target").shape[2];
  test::ParityFixture fixture{.oracle = oracle,
                              .blueprint = model::make_blueprint(architecture),
                              .samples = source[1],
                              .batches = source[0]};
  fixture.weights = test::weights_of(foreign);
  fixture.element = test::fields_of_oracle(fixture.blueprint.batch, oracle);
  return fixture;
}

const std::vector<const char*> kAll = {"t5_tiny", "t5_odd", "t5_v11_odd"},
                               kTrained = {"t5_tiny"};

TEST(T5Parity, LogitsAndLossFloat) {
  test::expect_logits_and_loss<float>(kAll, t5, 2e-5, 1e-6);
}
TEST(T5Parity, LogitsAndLossDouble) {
  test::expect_logits_and_loss<double>(kAll, t5, 1e-12, 1e-13);
}

TEST(T5Parity, GradientsFloat) {
  test::expect_gradients<float>(kAll, t5, 1e-5);
}
TEST(T5Parity, GradientsDouble) {
  test::expect_gradients<double>(kAll, t5, 1e-12);
}

TEST(T5Parity, TrainingFloat) {
  test::expect_training<float>(kTrained, t5, 1e-5);
}
TEST(T5Parity, TrainingDouble) {
  test::expect_training<double>(kTrained, t5, 1e-11);
}

TEST(T5Parity, PaddingTakesNoPart) {
  for (const char* name : {"t5_odd", "t5_v11_odd"}) {
    SCOPED_TRACE(name);
    test::expect_padding_takes_no_part(t5(name), "source", "source_lengths");
    test::expect_padding_takes_no_part(t5(name), "target", "target_lengths");
  }
}

}  // namespace
}  // namespace trireme

// GPT against Hugging Face's GPT-2, which ran in fp64 (make_gpt_fixtures.py): logits,
// loss, every gradient, and 20 AdamW steps with clipping, decay and schedule, with the
// weights behind them.
#include <gtest/gtest.h>

#include "parity/hugging_face_case.hpp"

namespace trireme {
namespace {

// The oracle's batches are tokens (n, b, s + 1).
test::ParityFixture gpt2(const std::string& name) {
  const std::string directory = test::parity_fixture(name);
  const std::string oracle = directory + "/oracle.safetensors";
  const io::SafetensorsReader reader(oracle);
  const Shape shape = reader.at("tokens").shape;
  const index_t positions = shape[2] - 1;
  const auto foreign = test::hugging_face_model(directory);
  const model::Architecture& architecture = foreign->config();
  TRIREME_REQUIRE(architecture.sequence == positions,
                  "batches of {} positions, a model of {}", positions,
                  architecture.sequence);
  test::ParityFixture fixture{.oracle = oracle,
                              .blueprint = model::make_blueprint(architecture),
                              .samples = shape[1],
                              .batches = shape[0]};
  fixture.weights = test::weights_of(foreign);
  fixture.element = [tokens = test::elements<std::int32_t>(reader.at("tokens")),
                     positions](const FieldSpec& field, index_t sample, index_t p) {
    if (field.holds == Holds::weights) return 1.0;
    if (field.holds == Holds::places) return static_cast<double>(p);
    const index_t behind = field.name == "labels" ? 1 : 0;
    const index_t at = sample * (positions + 1) + p + behind;
    return static_cast<double>(tokens[extent(at)]);
  };
  return fixture;
}

const std::vector<const char*> kAll = {"gpt2_tiny", "gpt2_odd"}, kTrained = {"gpt2_tiny"};

TEST(GptParity, LogitsAndLossFloat) {
  test::expect_logits_and_loss<float>(kAll, gpt2, 2e-5, 1e-6);
}
TEST(GptParity, LogitsAndLossDouble) {
  test::expect_logits_and_loss<double>(kAll, gpt2, 1e-12, 1e-13);
}

TEST(GptParity, GradientsFloat) {
  test::expect_gradients<float>(kAll, gpt2, 1e-5);
}
TEST(GptParity, GradientsDouble) {
  test::expect_gradients<double>(kAll, gpt2, 1e-12);
}

// A gradient of a bias is so near zero in the first steps that its rounding in fp32 is a
// part of the step: PyTorch's own fp32 is off by 5e-6 of that bias.
TEST(GptParity, TrainingFloat) {
  test::expect_training<float>(kTrained, gpt2, 1e-5, 3e-5);
}
TEST(GptParity, TrainingDouble) {
  test::expect_training<double>(kTrained, gpt2, 1e-11, 1e-7);
}

}  // namespace
}  // namespace trireme

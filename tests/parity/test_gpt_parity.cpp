// GPT against Hugging Face's GPT-2, which ran in fp64 (make_gpt_fixtures.py): logits,
// loss, every gradient, and 20 AdamW steps with clipping, decay and schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "ckpt/hugging_face.hpp"
#include "parity/parity_case.hpp"

namespace trireme {
namespace {

// The oracle's batches are tokens (n, b, s + 1).
test::ParityFixture gpt2(const std::string& name) {
  const std::string directory = test::parity_fixture(name);
  Log log{false};
  const auto model = std::make_shared<const ckpt::HuggingFaceModel>(directory, log);
  const std::string oracle = directory + "/oracle.safetensors";
  const io::SafetensorsReader reader(oracle);
  const Shape shape = reader.at("tokens").shape;
  const auto& c = model->config();
  const index_t positions = shape[2] - 1;
  test::ParityFixture fixture{
      .oracle = oracle,
      .blueprint = model::make_blueprint({.layers = c.layers,
                                          .hidden = c.hidden,
                                          .heads = c.heads,
                                          .kv_heads = c.heads,
                                          .ffn_hidden = c.ffn_hidden,
                                          .sequence = c.sequence,
                                          .vocab = c.vocab}),
      .samples = shape[1],
      .batches = shape[0]};
  TRIREME_REQUIRE(c.sequence == positions, "batches of {} positions, a model of {}",
                  positions, c.sequence);
  fixture.weights = [model](const ParamSpec& spec) {
    const auto& all = model->tensors();
    const auto found = std::ranges::find(all, spec.name, &ckpt::ForeignTensor::name);
    TRIREME_REQUIRE(found != all.end(), "the fixture has no '{}'", spec.name);
    return model->read(*found);
  };
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

template <class T>
void expect_logits_and_loss(double logit_bound, double loss_bound) {
  for (const char* name : {"gpt2_tiny", "gpt2_odd"}) {
    test::ParityCase<T>(gpt2(name)).expect_logits_and_loss(logit_bound, loss_bound);
  }
}
template <class T>
void expect_gradients(double bound) {
  for (const char* name : {"gpt2_tiny", "gpt2_odd"}) {
    test::ParityCase<T>(gpt2(name)).expect_gradients(bound);
  }
}

TEST(GptParity, LogitsAndLossFloat) {
  expect_logits_and_loss<float>(2e-5, 1e-6);
}
TEST(GptParity, LogitsAndLossDouble) {
  expect_logits_and_loss<double>(1e-12, 1e-13);
}

TEST(GptParity, GradientsFloat) {
  expect_gradients<float>(1e-5);
}
TEST(GptParity, GradientsDouble) {
  expect_gradients<double>(1e-12);
}

TEST(GptParity, TrainingFloat) {
  test::ParityCase<float>(gpt2("gpt2_tiny")).expect_training(1e-5);
}
TEST(GptParity, TrainingDouble) {
  test::ParityCase<double>(gpt2("gpt2_tiny")).expect_training(1e-11);
}

}  // namespace
}  // namespace trireme

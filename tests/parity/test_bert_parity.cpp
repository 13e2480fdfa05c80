// BERT against Hugging Face's BERT (norms behind the sums) and MegatronBert (before the
// branches), which ran in fp64 (make_bert_fixtures.py): logits of masked words and of
// pairs, both losses, every gradient, and 20 AdamW steps on batches with padding and the
// weights behind them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

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
                                       "bert_pre_tiny"};

TEST(BertParity, LogitsAndLossFloat) {
  test::expect_logits_and_loss<float>(kAll, bert, 2e-5, 1e-6);
}
TEST(BertParity, LogitsAndLossDouble) {
  test::expect_logits_and_loss<double>(kAll, bert, 1e-12, 1e-13);
}

// A loss of two classes knows no more of their logits than the difference. Where the
// weights of one class are zero its logit is, too: then the losses of a sample with
// either label differ by the logit of the other class.
template <class T>
void expect_pair_logits(const std::string& name, double bound) {
  SCOPED_TRACE(name);
  const test::ParityFixture fixture = bert(name);
  const auto& objectives = fixture.blueprint.objectives;
  const auto pairs = static_cast<std::size_t>(
      std::ranges::find(objectives, "pair_weights", &model::Objective::mask) -
      objectives.begin());
  const io::SafetensorsReader oracle(fixture.oracle);
  const auto expected = test::elements<double>(oracle.at("pair_logits"));  // (b, 2)
  for (const std::size_t kept : {0u, 1u}) {
    test::ParityFixture of_class = fixture;
    of_class.weights = [&fixture, kept](const ParamSpec& spec) {
      std::vector<float> values = fixture.weights(spec);
      if (!spec.name.starts_with("pair_head/classifier/")) return values;
      const std::size_t row = values.size() / 2;
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i / row != kept) values[i] = 0.0f;
      }
      return values;
    };
    test::ParityCase<T> with(of_class);
    for (index_t chosen = 0; chosen < fixture.samples; ++chosen) {
      const auto loss_with = [&](std::size_t label) {
        return with.evaluated_loss(
            pairs, [&](const FieldSpec& field, index_t sample, index_t position) {
              if (field.name == "pair_labels") return static_cast<double>(label);
              if (field.name == "pair_weights") return sample == chosen ? 1.0 : 0.0;
              return fixture.element(field, sample, position);
            });
      };
      EXPECT_NEAR(loss_with(1 - kept) - loss_with(kept),
                  expected.at(2 * extent(chosen) + kept), bound)
          << "sample " << chosen << ", class " << kept;
    }
  }
}
TEST(BertParity, PairLogitsFloat) {
  for (const char* name : kAll) expect_pair_logits<float>(name, 2e-5);
}
TEST(BertParity, PairLogitsDouble) {
  for (const char* name : kAll) expect_pair_logits<double>(name, 1e-12);
}

TEST(BertParity, GradientsFloat) {
  test::expect_gradients<float>(kAll, bert, 1e-5);
}
TEST(BertParity, GradientsDouble) {
  test::expect_gradients<double>(kAll, bert, 1e-12);
}

TEST(BertParity, TrainingFloat) {
  test::expect_training<float>(kAll, bert, 1e-5, 1e-5);
}
TEST(BertParity, TrainingDouble) {
  test::expect_training<double>(kAll, bert, 1e-11, 1e-7);
}

TEST(BertParity, PaddingTakesNoPart) {
  for (const char* name : {"bert_odd", "bert_pre_odd"}) {
    SCOPED_TRACE(name);
    test::expect_padding_takes_no_part(bert(name), "tokens", "lengths");
  }
}

}  // namespace
}  // namespace trireme

// Where a number that is not finite came from: one weight after the other is spoiled, and
// the chunk names the part that uses it.
#include <gtest/gtest.h>

#include <limits>

#include "unit/nn/layer_bench.hpp"

namespace trireme::test {
namespace {

struct PlaceCase {
  const char* parameter;
  std::size_t element;  // of it
  const char* place;
};

// A chunk after a forward pass without a fault.
struct PlaceBench {
  explicit PlaceBench(double dropout)
      : blueprint(model::make_blueprint(small_gpt(dropout))),
        chunk(bench.builder(), blueprint, blueprint.whole()) {
    bench.allocate([&](const nn::Context& context) { forward(context); });
    forward(bench.context());
  }
  void forward(nn::Context context) {
    context.gradients = nn::Gradients::none;
    chunk.forward(context, 0, {}, {});
  }
  std::string place() { return chunk.locate_non_finite(bench.context(), 0); }
  // Where a forward pass with this value at `element` of the weight goes wrong.
  std::string place_with(std::size_t weight, std::size_t element, double value) {
    const std::vector<double> good = bench.get(Slab::weight, weight);
    std::vector<double> values = good;
    values.at(element) = value;
    bench.set(Slab::weight, weight, values);
    bench.spoil_memory();
    forward(bench.context());
    bench.set(Slab::weight, weight, good);
    return place();
  }

  LayerBench<float> bench;
  const model::Blueprint blueprint;
  model::Chunk<float> chunk;
};

class NonFinitePlace : public ::testing::TestWithParam<PlaceCase> {};

TEST_P(NonFinitePlace, IsNamed) {
  const auto [parameter, element, place] = GetParam();
  PlaceBench run(0.1);
  EXPECT_EQ(run.place(), "");
  const std::size_t weight = run.bench.registry.find(parameter);
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(run.place_with(weight, element, bad), place) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(
    NonFinitePlaceOf, NonFinitePlace,
    ::testing::Values(
        PlaceCase{"embedding/position/weight", 13, "embedding"},
        PlaceCase{"layers/0/input_norm/weight", 3, "layers/0/input_norm"},
        PlaceCase{"layers/1/input_norm/bias", 0, "layers/1/input_norm"},
        PlaceCase{"layers/0/attention/qkv/weight", 5, "layers/0/attention/qkv"},
        PlaceCase{"layers/1/attention/qkv/bias", 14, "layers/1/attention/qkv"},
        PlaceCase{"layers/0/attention/projection/weight", 7,
                  "layers/0/attention/projection"},
        PlaceCase{"layers/1/attention/projection/bias", 2,
                  "layers/1/attention/projection"},
        PlaceCase{"layers/1/mlp_norm/weight", 11, "layers/1/mlp_norm"},
        PlaceCase{"layers/0/mlp/fc1/weight", 20, "layers/0/mlp/fc1"},
        PlaceCase{"layers/1/mlp/fc1/bias", 9, "layers/1/mlp/fc1"},
        PlaceCase{"layers/0/mlp/fc2/weight", 1, "layers/0/mlp/fc2"},
        PlaceCase{"layers/1/mlp/fc2/bias", 4, "layers/1/mlp/fc2"},
        PlaceCase{"final_norm/weight", 6, "final_norm"}),
    [](const auto& info) {
      std::string name = info.param.parameter;
      std::replace(name.begin(), name.end(), '/', '_');
      return name;
    });

// The tied embedding is used at both ends: by the first place it reaches.
TEST(NonFinitePlaceOfTiedWeight, IsTheFirstThatUsesIt) {
  PlaceBench run(0.0);
  const std::vector<double> used = run.bench.tokens.tokens.values();
  std::vector<double> rest;
  for (int token = 0; token < kVocabulary; ++token) {
    if (std::count(used.begin(), used.end(), token) == 0) rest.push_back(token);
  }
  ASSERT_FALSE(rest.empty());
  const auto place_with_bad_row = [&](double token) {
    return run.place_with(run.bench.registry.find("embedding/word/weight"),
                          static_cast<std::size_t>(token) * kHidden, NAN);
  };
  EXPECT_EQ(place_with_bad_row(used[4]), "embedding");
  EXPECT_EQ(place_with_bad_row(rest[0]), "logits");
}

}  // namespace
}  // namespace trireme::test

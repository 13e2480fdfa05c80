// Every layer and the whole GPT, with dropout and without: gradients of the input and of
// every parameter, error and rate.
#include <gtest/gtest-spi.h>

#include "gradcheck/nn/layer_gradients.hpp"

namespace trireme::test {
namespace {

std::vector<NamedLayer<double>> layers_with_dropout() {
  std::vector<NamedLayer<double>> layers = layers_of_all_kinds<double>();
  std::erase_if(layers, [](const auto& layer) { return !layer.has_dropout; });
  return layers;
}

std::string name_of(const ::testing::TestParamInfo<NamedLayer<double>>& info) {
  return info.param.name;
}

class LayersGradient : public ::testing::TestWithParam<NamedLayer<double>> {};

TEST_P(LayersGradient, OfEverything) {
  LayerGradients(GetParam(), 0.0).expect_right(16);
}

INSTANTIATE_TEST_SUITE_P(Layers, LayersGradient,
                         ::testing::ValuesIn(layers_of_all_kinds<double>()), name_of);

class LayersGradientWithDropout : public LayersGradient {};

TEST_P(LayersGradientWithDropout, OfEverything) {
  LayerGradients(GetParam(), 0.3).expect_right(16);
}

INSTANTIATE_TEST_SUITE_P(Layers, LayersGradientWithDropout,
                         ::testing::ValuesIn(layers_with_dropout()), name_of);

// What the checks above would pass by: a layer whose backward pass forgets something.
TEST(LayersCheck, NoticesAForgottenGradient) {
  NamedLayer<double> forgetful = {
      "Mlp", false, [](LayerBench<double>& bench, double) {
        Layer<double> layer = mlp<double>(bench, 0);
        const auto whole = layer.backward_weight;
        layer.backward_weight = [&bench, whole](const nn::Context& c) {
          const auto bias = bench.registry.find("mlp/fc1/bias");
          if (c.exec.is_shape_only()) return whole(c);
          const auto before = bench.get(Slab::gradient, bias);
          whole(c);
          bench.set(Slab::gradient, bias, before);
        };
        return layer;
      }};
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter catcher(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD,
        &failures);
    LayerGradients(forgetful, 0).expect_right(4);
  }
  ASSERT_EQ(failures.size(), 2);  // no gradient at all, and not the right one
  EXPECT_NE(std::string(failures.GetTestPartResult(1).message()).find("mlp/fc1/bias"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::test

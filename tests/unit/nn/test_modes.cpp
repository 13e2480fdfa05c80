// What a forward pass depends on: evaluation sees no dropout; training sees the same
// masks for the same StepState, bit by bit, and others for other samples, seeds and
// sites.
#include "unit/nn/layer_run.hpp"

namespace trireme::test {
namespace {

using Bytes = std::vector<unsigned char>;

std::vector<NamedLayer<float>> layers_with_dropout() {
  std::vector<NamedLayer<float>> layers = all_layers<float>();
  std::erase_if(layers, [](const auto& layer) { return !layer.has_dropout; });
  return layers;
}

// y, or the loss where there is none.
Bytes output(LayerRun<float>& run, nn::Mode mode = nn::Mode::training) {
  run.bench.spoil_memory();
  run.forward(mode, nn::Gradients::none);
  return run.layer.out > 0 ? run.y.bytes() : run.bench.totals.bytes();
}

void set_step(LayerRun<float>& run, std::uint64_t seed, std::uint64_t sample_base) {
  kernels::StepState step = run.bench.step;
  step.seed = seed;
  step.sample_base = sample_base;
  run.bench.set_step(step);
}

class ModesOf : public ::testing::TestWithParam<NamedLayer<float>> {};

TEST_P(ModesOf, EvaluationDropsNothing) {
  LayerRun<float> with(GetParam(), 0.3), without(GetParam(), 0.0);
  const Bytes expected = output(without);
  EXPECT_EQ(output(without, nn::Mode::evaluation), expected);
  EXPECT_EQ(output(with, nn::Mode::evaluation), expected);
  EXPECT_NE(output(with), expected);
  EXPECT_EQ(output(with, nn::Mode::evaluation), expected);
}

TEST_P(ModesOf, TrainingRepeatsBitwise) {
  LayerRun<float> run(GetParam(), 0.3), other(GetParam(), 0.3);
  const Bytes first = output(run);
  EXPECT_EQ(output(run), first);
  EXPECT_EQ(output(other), first);
  run.all();
  other.all();
  EXPECT_EQ(run.bench.get(Slab::gradient), other.bench.get(Slab::gradient));
}

TEST_P(ModesOf, OtherSamplesAndSeedsGiveOtherMasks) {
  LayerRun<float> run(GetParam(), 0.3);
  set_step(run, 1, 0);
  const Bytes first = output(run);
  set_step(run, 1, 2);
  EXPECT_NE(output(run), first);
  set_step(run, 2, 0);
  EXPECT_NE(output(run), first);
  set_step(run, 1, std::uint64_t{1} << 33);  // not only its lower half
  EXPECT_NE(output(run), first);
  set_step(run, 1, 0);
  EXPECT_EQ(output(run), first);
}

class ModesOfSamples : public ModesOf {};

// Sample n has the same masks as second column of one micro-batch and first of the next.
TEST_P(ModesOfSamples, MasksBelongToSamplesAndNotToColumns) {
  LayerRun<float> run(GetParam(), 0.3);
  std::vector<double> x = run.x.values();
  const auto column = [&](index_t sample) {  // of y
    const std::vector<double> y = run.y.values();
    std::vector<double> values;
    for (index_t row = sample; row < kRows; row += kSamples) {
      const auto begin = y.begin() + row * run.layer.out;
      values.insert(values.end(), begin, begin + run.layer.out);
    }
    return values;
  };
  // Both columns have the same input.
  for (index_t row = 0; row < kRows; row += kSamples) {
    std::copy_n(x.begin() + row * run.layer.in, run.layer.in,
                x.begin() + (row + 1) * run.layer.in);
  }
  run.x.set(x);
  set_step(run, 1, 40);
  output(run);
  const std::vector<double> second = column(1);
  EXPECT_NE(column(0), second);
  set_step(run, 1, 41);
  output(run);
  EXPECT_EQ(column(0), second);
}

std::string name_of(const ::testing::TestParamInfo<NamedLayer<float>>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Modes, ModesOf, ::testing::ValuesIn(layers_with_dropout()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Modes, ModesOfSamples,
                         ::testing::Values(NamedLayer<float>{"Attention", true,
                                                             attention<float>},
                                           NamedLayer<float>{"TransformerLayer", true,
                                                             transformer_layer<float>}),
                         name_of);

// Layers and sites have masks of their own: dropping a layer's attention output does not
// drop the same elements of its MLP's, nor of the next layer's. Seen where the branches
// are nothing but one: y = x + mask_a / (1 - p) + mask_m / (1 - p).
TEST(ModesOfSites, MasksAreTheirOwn) {
  constexpr double kDropout = 0.5;
  const auto masks = [&](index_t layer_number) {
    LayerBench<float> bench;
    const nn::TransformerLayer<float> layer(
        bench.builder(), nn::layer_form(transformer_config(kDropout), layer_number));
    nn::TransformerLayer<float>::Saved saved;
    const Array<float> x(uniform(kRows * kHidden, 1)), y(kRows * kHidden);
    const auto forward = [&](const nn::Context& context) {
      layer.forward(context, x.cmatrix(kRows, kHidden), y.matrix(kRows, kHidden), saved);
    };
    bench.allocate(forward);
    for (std::size_t i = 0; i < bench.registry.size(); ++i) {
      const std::string& name = bench.registry.spec(i).name;
      const double bias = name.ends_with("attention/projection/bias") ? 1.0
                          : name.ends_with("mlp/fc2/bias")            ? 4.0
                                                                      : 0.0;
      bench.set(Slab::weight, i,
                std::vector<double>(bench.get(Slab::weight, i).size(), bias));
    }
    forward(bench.context());
    // 2 where attention's is kept, 8 where the MLP's is.
    std::vector<double> values = y.values();
    const std::vector<double> input = x.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::round(values[i] - input[i]);
    }
    return values;
  };
  const std::vector<double> first = masks(0), second = masks(1);
  std::size_t both = 0, one = 0, other_layer = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_TRUE(first[i] == 0 || first[i] == 2 || first[i] == 8 || first[i] == 10);
    both += first[i] == 0 || first[i] == 10;
    one += first[i] == 2 || first[i] == 8;
    other_layer += first[i] != second[i];
  }
  // 120 elements, half of each expected (three quarters the last); one in 10^6 by chance.
  EXPECT_GT(both, 33u);
  EXPECT_GT(one, 33u);
  EXPECT_GT(other_layer, 66u);
}

// The same weights in two layers: only their masks of the attention probabilities differ.
TEST(ModesOfSites, AttentionMasksAreTheLayersOwn) {
  const auto output = [](index_t layer_number, double attention_dropout) {
    LayerBench<float> bench;
    config::ModelConfig config = transformer_config(0.0);
    config.attention_dropout = attention_dropout;
    const nn::TransformerLayer<float> layer(bench.builder(),
                                            nn::layer_form(config, layer_number));
    nn::TransformerLayer<float>::Saved saved;
    const Array<float> x(uniform(kRows * kHidden, 1)), y(kRows * kHidden);
    const auto forward = [&](const nn::Context& context) {
      layer.forward(context, x.cmatrix(kRows, kHidden), y.matrix(kRows, kHidden), saved);
    };
    bench.allocate(forward);
    forward(bench.context());
    return y.bytes();
  };
  EXPECT_EQ(output(0, 0.0), output(1, 0.0));
  EXPECT_EQ(output(1, 0.5), output(1, 0.5));
  EXPECT_NE(output(0, 0.5), output(1, 0.5));
}

}  // namespace
}  // namespace trireme::test

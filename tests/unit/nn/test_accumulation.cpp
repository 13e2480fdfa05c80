// Gradients are added to what the slab holds: of two micro-batches, the sum of both; and
// the first micro-batch of a step writes over it.
#include <cmath>

#include "unit/nn/layer_run.hpp"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

class AccumulationOf : public ::testing::TestWithParam<NamedLayer<double>> {};

TEST_P(AccumulationOf, TwoMicroBatches) {
  LayerRun<double> run(GetParam(), 0.3);
  const Values first_x = run.x.values();
  const Values second_x = uniform(first_x.size(), 5);
  const Values none(run.bench.get(Slab::gradient).size(), 0.0);
  const auto pass = [&](const Values& x, std::uint64_t sample) {
    kernels::StepState step = run.bench.step;
    step.sample_base = sample;
    run.bench.set_step(step);
    run.x.set(x);
    run.bench.spoil_memory();
    run.all();
  };
  pass(first_x, 10);
  const Values first = run.bench.get(Slab::gradient);
  run.bench.set(Slab::gradient, none);
  pass(second_x, 12);
  const Values second = run.bench.get(Slab::gradient);

  run.bench.set(Slab::gradient, none);
  pass(first_x, 10);
  pass(second_x, 12);
  Values sum = first;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  expect_close(run.bench.get(Slab::gradient), sum, 1e-13, 1.0, "gradient");
  EXPECT_NE(first, second);
}

// Whatever a gradient holds that is not written: the bits of one that begins at zero.
TEST_P(AccumulationOf, TheFirstMicroBatchOverwrites) {
  LayerRun<double> run(GetParam(), 0.3);
  const auto two = [&] {
    for (int pass = 0; pass < 2; ++pass) {
      run.bench.spoil_memory();
      run.all();
    }
    return run.bench.get(Slab::gradient);
  };
  const Values from_zero = two();
  for (std::size_t i = 0; i < run.bench.registry.size(); ++i) {
    const Values bad(run.bench.get(Slab::gradient, i).size(), NAN);
    run.bench.set(Slab::gradient, i, bad);
  }
  for (std::size_t b = 0; b < run.bench.params.partition().buckets().size(); ++b) {
    run.bench.params.forget_gradients(b);
  }
  EXPECT_EQ(two(), from_zero);
}

// Not an element of the slab beyond the parameters' own.
TEST_P(AccumulationOf, PaddingStaysZero) {
  LayerRun<double> run(GetParam(), 0.3);
  run.all();
  Values gradient = run.bench.get(Slab::gradient);
  for (std::size_t i = 0; i < run.bench.registry.size(); ++i) {
    const auto begin = gradient.begin() + run.bench.params.offset(i);
    const auto count = std::ssize(run.bench.get(Slab::gradient, i));
    EXPECT_NE(Values(begin, begin + count), Values(static_cast<std::size_t>(count)))
        << run.bench.registry.spec(i).name;
    std::fill(begin, begin + count, 0.0);
  }
  EXPECT_EQ(gradient, Values(gradient.size(), 0.0));
}

INSTANTIATE_TEST_SUITE_P(Accumulation, AccumulationOf,
                         ::testing::ValuesIn(layers_of_all_kinds<double>()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trireme::test

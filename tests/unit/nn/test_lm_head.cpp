// The head takes the rows of a micro-batch in parts: whatever their size, it is the same
// loss to the bit and the same gradients, in memory for the logits of one part.
#include "unit/nn/layer_run.hpp"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

// Logits of so many rows are made at a time; of 0: of all 10.
template <class T, index_t kMost>
NamedLayer<T> head() {
  return {"LmHead", false,
          [](LayerBench<T>& bench, double) { return lm_head_by_rows(bench, kMost); }};
}

template <class T>
struct Outcome {
  explicit Outcome(const NamedLayer<T>& which) {
    LayerRun<T> run(which, 0.0);
    run.all();
    d_x = run.d_x.values();
    gradient = run.bench.get(Slab::gradient);
    totals = run.bench.totals.values();
  }
  Values d_x, gradient, totals;
};

template <class T>
class LmHeadOf : public ::testing::Test {};
TYPED_TEST_SUITE(LmHeadOf, RealTypes);

TYPED_TEST(LmHeadOf, PartsGiveWhatAllRowsGiveAtOnce) {
  using T = TypeParam;
  const Outcome<T> whole(head<T, 0>());
  EXPECT_GT(whole.totals[0], 1.0);
  for (const auto& parts :
       {head<T, 1>(), head<T, 3>(), head<T, 4>(), head<T, 9>(), head<T, 10>()}) {
    const Outcome<T> got(parts);
    // A product of fewer rows may sum in another order, and the table's gradient does.
    expect_close(got.d_x, whole.d_x, 16 * rounding<T>(), 0.1, "d_x");
    expect_close(got.gradient, whole.gradient, 32 * rounding<T>(), 0.1, "gradient");
    expect_close(got.totals, whole.totals, 4 * rounding<T>(), 0.0, "totals");
  }
}

TYPED_TEST(LmHeadOf, LossIsThatOfEvaluationToTheBit) {
  using T = TypeParam;
  for (const auto& parts : {head<T, 0>(), head<T, 3>()}) {
    LayerRun<T> run(parts, 0.0);
    run.forward();
    const auto bits = run.bench.totals.bytes();
    run.forward(nn::Mode::training, nn::Gradients::none);
    EXPECT_EQ(run.bench.totals.bytes(), bits);
    run.forward(nn::Mode::evaluation);
    EXPECT_EQ(run.bench.totals.bytes(), bits);
  }
}

TEST(LmHeadMemory, IsForTheLogitsOfOnePart) {
  const auto scratch = [](index_t most_rows) {
    LayerBench<double> bench;
    const Layer<double> layer = lm_head_by_rows(bench, most_rows);
    bench.allocate([&](const nn::Context& shapes) {
      layer.forward(shapes, View2<const double>(nullptr, kRows, kHidden), {});
    });
    return bench.planned.scratch;
  };
  const std::size_t row = 128 * sizeof(double);  // 13 words, padded
  EXPECT_EQ(scratch(0) - scratch(4), 6 * row);
  EXPECT_EQ(scratch(4) - scratch(2), 2 * row);
}

}  // namespace
}  // namespace trireme::test

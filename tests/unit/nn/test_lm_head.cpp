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

// docs/math/memory.md has the example: 4096 rows of GPT-2's words, in 7 parts of 608 rows
// or fewer; and of a vocabulary so large that 128 rows exceed the limit.
TEST(LmHeadMemory, OfManyRowsIsLimited) {
  const auto logits = [](index_t vocabulary) {
    LayerBench<float> bench;
    const nn::VocabParallelEmbedding<float> word(bench.builder(), "word", vocabulary,
                                                 kHidden, 0.02);
    const nn::LmHead<float> head(bench.builder(), {.hidden = kHidden}, word);
    constexpr index_t kMany = 4096;
    Arena saved, scratch, held;
    const Exec shapes = Exec::shape_only();
    const nn::Context context{.exec = shapes,
                              .groups = bench.groups,
                              .step = {},
                              .saved = &saved,
                              .scratch = scratch,
                              .held = held,
                              .batch = nn::MicroBatch(4, kMany / 4)};
    nn::LmHead<float>::Saved kept;
    head.forward(context, View2<const float>(nullptr, kMany, kHidden),
                 View1<const std::int32_t>(nullptr, kMany),
                 View1<const float>(nullptr, kMany), View1<double>(nullptr, 2), kept);
    const auto all =
        scratch.peak_by_category().at(static_cast<std::size_t>(Category::logits));
    return all - 3 * sizeof(float) * kMany;  // maximum and sums
  };
  if (!kHostExecution) GTEST_SKIP() << "a GPU takes more at a time";
  EXPECT_EQ(logits(50257), 608u * 50304 * sizeof(float));
  EXPECT_EQ(logits(300000), 128u * 300032 * sizeof(float));
}

}  // namespace
}  // namespace trireme::test

// The weight-gradient pass may come later: the same bits as right after the input
// gradient, whatever has used the scratch memory between, for each layer and for chunks
// with several micro-batches in flight.
#include "unit/nn/layer_run.hpp"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

class WeightPassOfLayers : public ::testing::TestWithParam<NamedLayer<float>> {};

TEST_P(WeightPassOfLayers, NeedsNothingButSavedAndHeld) {
  LayerRun<float> now(GetParam(), 0.3), later(GetParam(), 0.3);
  now.all();
  later.forward();
  later.bench.scratch.spoil();
  later.backward_input();
  later.bench.scratch.spoil();
  later.d_x.set(Values(later.d_x.values().size(), NAN));  // its reader is done with it
  later.y.set(Values(later.y.values().size(), NAN));
  later.backward_weight();
  const Values gradient = later.bench.get(Slab::gradient);
  for (const double component : gradient) ASSERT_TRUE(std::isfinite(component));
  EXPECT_EQ(gradient, now.bench.get(Slab::gradient));
}

TEST_P(WeightPassOfLayers, InputPassLeavesGradientsAlone) {
  LayerRun<float> run(GetParam(), 0.3);
  const Values before = uniform(run.bench.get(Slab::gradient).size(), 3);
  run.bench.set(Slab::gradient, before);
  const Values start = run.bench.get(Slab::gradient);
  run.forward(nn::Mode::training, nn::Gradients::none);
  EXPECT_EQ(run.bench.get(Slab::gradient), start);
  run.forward();  // which takes those of the head
  const Values kept = run.bench.get(Slab::gradient);
  run.backward_input();
  EXPECT_EQ(run.bench.get(Slab::gradient), kept);
}

INSTANTIATE_TEST_SUITE_P(WeightPass, WeightPassOfLayers,
                         ::testing::ValuesIn(layers_of_all_kinds<float>()),
                         [](const auto& info) { return std::string(info.param.name); });

// A chunk and micro-batches, each with memory, tokens and dropout masks of its own.
class WeightPassOfChunks : public ::testing::Test {
 protected:
  static constexpr int kMicrobatches = 3;

  struct Run {
    Run() : chunk(bench.builder(), blueprint, blueprint.whole()) {
      bench.allocate([&](const nn::Context& shapes) {
        forward(shapes, 0);
        backward(shapes, 0, model::WeightPass::now);
        backward(shapes, 0, model::WeightPass::later);
        chunk.backward_weight(shapes, 0);
      });
      chunk.set_slot_count(kMicrobatches);
      for (int m = 0; m < kMicrobatches; ++m) {
        saved[m].allocate(bench.planned.saved[0]);
        held[m].allocate(bench.planned.held[0]);
      }
    }
    void forward(const nn::Context& context, int m) { chunk.forward(context, m, {}, {}); }
    void backward(const nn::Context& context, int m, model::WeightPass weight_pass) {
      chunk.backward(context, m, {}, {}, weight_pass);
    }
    // The context of micro-batch m, which has samples 2 m and 2 m + 1.
    nn::Context context(int m) {
      kernels::StepState step = bench.step;
      step.sample_base = static_cast<std::uint64_t>(2 * m);
      bench.set_step(step);
      nn::Context context = bench.context(saved[m], held[m]);
      context.batch = batches[m].fields();
      return context;
    }

    LayerBench<float> bench;
    const model::Blueprint blueprint = model::make_blueprint(small_gpt(0.3));
    model::Chunk<float> chunk;
    NanArena saved[kMicrobatches], held[kMicrobatches];
    TokenBatch batches[kMicrobatches] = {TokenBatch(1), TokenBatch(2), TokenBatch(3)};
  };

  // All forward passes first: the head's take gradients, and sums keep one order. Then
  // one after the other, weight gradients at once.
  static Values expected(Run& run) {
    for (int m = 0; m < kMicrobatches; ++m) run.forward(run.context(m), m);
    for (int m = 0; m < kMicrobatches; ++m) {
      run.backward(run.context(m), m, model::WeightPass::now);
      EXPECT_EQ(run.held[m].arena.used(), 0u);
    }
    return run.bench.get(Slab::gradient);
  }
};

TEST_F(WeightPassOfChunks, LaterOfSeveralInFlight) {
  Run now, later;
  const Values gradient = expected(now);
  for (int m = 0; m < kMicrobatches; ++m) later.forward(later.context(m), m);
  for (int m = 0; m < kMicrobatches; ++m) {
    later.backward(later.context(m), m, model::WeightPass::later);
    EXPECT_EQ(later.bench.scratch.arena.used(), 0u);
    later.bench.scratch.spoil();
  }
  for (int m = 0; m < kMicrobatches; ++m) {
    later.chunk.backward_weight(later.context(m), m);
    EXPECT_EQ(later.held[m].arena.used(), 0u);
  }
  EXPECT_EQ(later.bench.get(Slab::gradient), gradient);
  EXPECT_EQ(later.bench.totals.bytes(), now.bench.totals.bytes());
}

TEST_F(WeightPassOfChunks, NowHoldsOneLayerOnly) {
  Run now, later;
  expected(now);
  later.forward(later.context(0), 0);
  later.backward(later.context(0), 0, model::WeightPass::later);
  EXPECT_LT(2 * now.held[0].arena.peak(), later.held[0].arena.used() + 1);
}

}  // namespace
}  // namespace trireme::test

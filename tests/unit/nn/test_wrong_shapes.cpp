// Activations, micro-batches and groups that do not fit: refused, with both numbers.
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "unit/io/scratch.hpp"
#include "unit/nn/layer_run.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WrongShapesOfLayers, InputOfOtherRowsOrColumns) {
  for (const NamedLayer<float>& which : all_layers<float>()) {
    LayerRun<float> run(which, 0.0);
    if (run.layer.in == 0) continue;
    const Array<float> wide(kRows * (kHidden + 2)), lower((kRows - 1) * run.layer.in);
    const View2<float> y = run.y.matrix(kRows, run.layer.out);
    const auto forward = [&](View2<const float> x) {
      run.bench.spoil_memory();
      return message_of<Error>([&] { run.layer.forward(run.bench.context(), x, y); });
    };
    EXPECT_THAT(forward(wide.cmatrix(kRows, kHidden + 2)), HasSubstr("14")) << which.name;
    EXPECT_THAT(forward(lower.cmatrix(kRows - 1, run.layer.in)),
                AllOf(HasSubstr("9"), HasSubstr("10")))
        << which.name;
  }
}

class WrongShapesOfChunks : public ::testing::Test {
 protected:
  WrongShapesOfChunks() : chunk(bench.builder(), blueprint, blueprint.whole()) {
    bench.allocate([&](const nn::Context& shapes) { forward(shapes); });
  }
  void forward(const nn::Context& context, int slot = 0) {
    chunk.forward(context, slot, {}, {});
  }
  std::string message(const nn::Context& context, int slot = 0) {
    return message_of<Error>([&] { forward(context, slot); });
  }

  LayerBench<float> bench;
  const model::Blueprint blueprint = model::make_blueprint(small_gpt(0.0));
  model::Chunk<float> chunk;
};

TEST_F(WrongShapesOfChunks, FieldsThatNobodyLoaded) {
  nn::Context context = bench.context();
  context.batch.set(1, nullptr, 10);
  EXPECT_THAT(message(context), HasSubstr("field 1 of the micro-batch is not loaded"));
}

TEST_F(WrongShapesOfChunks, FieldsOfOtherLengths) {
  const Array<std::int32_t> nine(9);
  const Array<float> eleven(11, 1.0);
  nn::Context positions = bench.context(), mask = bench.context();
  positions.batch.set(1, nine.vector().data(), 9);
  EXPECT_THAT(message(positions),
              HasSubstr("field 'positions' of a micro-batch of 5 positions of 2 samples "
                        "has 9 elements, 10 wanted"));
  mask.batch.set(3, eleven.vector().data(), 11);
  EXPECT_THAT(message(mask), HasSubstr("'loss_mask' of a micro-batch of 5 positions of 2 "
                                       "samples has 11 elements, 10 wanted"));
}

TEST_F(WrongShapesOfChunks, LongerThanTheModel) {
  nn::Context context = bench.context();
  context.batch.samples = 1;
  context.batch.streams[0].sequence = kRows;
  EXPECT_THAT(message(context), HasSubstr("samples of 10 positions, the model has 7"));
}

TEST_F(WrongShapesOfChunks, NoSuchSlot) {
  EXPECT_THAT(message(bench.context(), 1), HasSubstr("slot 1 of 1: set_slot_count"));
}

TEST_F(WrongShapesOfChunks, MoreThanWasPlanned) {
  bench.saved.allocate(bench.planned.saved[0] - 256);
  EXPECT_THAT(message(bench.context()),
              AllOf(HasSubstr("workspace of"), HasSubstr("planned for less")));
}

TEST(WrongShapesOfHeads, ThatCannotShareKeys) {
  LayerBench<float> bench;
  config::ModelConfig config = transformer_config(0.0);
  config.kv_heads = 3;  // four heads share three
  const nn::Attention<float> layer(bench.builder(), "attention",
                                   nn::attention_form(config, 3));
  const Array<float> x(kRows * kHidden), y(kRows * kHidden);
  nn::Attention<float>::Saved saved;
  const auto forward = [&](const nn::Context& context) {
    layer.forward(context, x.cmatrix(kRows, kHidden), y.matrix(kRows, kHidden), saved);
  };
  EXPECT_THAT(message_of<Error>([&] { bench.allocate(forward); }),
              HasSubstr("4 query heads share 3 key heads"));
}

}  // namespace
}  // namespace trireme::test

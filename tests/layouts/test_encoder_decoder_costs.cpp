// What the second kind of model is said to cost: the FLOPs of blocks on streams of
// different lengths are those that steps compute, and each block can be timed on its own.
#include <gtest/gtest.h>

#include "comm/process_groups.hpp"
#include "layouts/layout_matrix.hpp"
#include "step/block_probe.hpp"
#include "step/step_plan.hpp"

namespace trireme::test {
namespace {

constexpr MatrixSize kSize{
    .layers = 9, .heads = 8, .samples = 4, .kind = Kind::encoder_decoder};

step::ModelState<float> state_of(const model::Blueprint& blueprint) {
  return {comm::make_groups_of_one(), blueprint, {}, matrix_maker<float>(kSize)};
}

// Two of the three products with the words' table have rows of padding on a host.
double padding_flops(const step::ModelState<float>& state) {
  const model::SharedTable& table = state.blueprint.vocabulary_table();
  const index_t rows = state.whole().logit_columns() - table.rows;
  return static_cast<double>((kHostExecution ? 2 : 3) * 2 * kSequence * table.columns *
                             rows);
}

double layers_forward(const model::Blueprint& blueprint, model::AttentionCount count) {
  double sum = 0.0;
  for (const model::BlockSpec& block : blueprint.blocks) {
    if (block.is_layer) sum += block.forward_flops(blueprint.batch, count);
  }
  return sum;
}

TEST(EncoderDecoderCosts, FlopsAreThoseOfItsBlocks) {
  using enum model::AttentionCount;
  const model::Blueprint blueprint = matrix_blueprint(kSize);
  const step::ModelState<float> state = state_of(blueprint);
  for (const index_t layers : {index_t{0}, nn::Recompute::kAllLayers}) {
    const step::StepShape shape{.micro = 2,
                                .sequence = kSequence,
                                .microbatches = 2,
                                .recompute = {.layers = layers}};
    const Cost cost = step::plan_step(state, shape).tally.total().cost;
    const auto expected = [&](model::AttentionCount count) {
      const double again = layers == 0 ? 0.0 : layers_forward(blueprint, count);
      return static_cast<double>(kSize.samples) *
             (blueprint.model_flops(count) + again + padding_flops(state));
    };
    EXPECT_EQ(cost.flops, expected(full));
    EXPECT_EQ(cost.flops - cost.masked_flops, expected(causal));
  }
}

TEST(EncoderDecoderCosts, EachBlockIsTimed) {
  config::Deck deck;
  deck.model = matrix_model(kSize);
  deck.batch.micro = 2;
  deck.batch.global = 2;
  const model::Blueprint blueprint = matrix_blueprint(kSize);
  const step::ModelState<float> state = state_of(blueprint);
  for (const bool is_apart : {false, true}) {
    deck.parallel.schedule = is_apart ? config::PipelineSchedule::zero_bubble
                                      : config::PipelineSchedule::one_f_one_b;
    for (std::size_t i = 0; i < blueprint.blocks.size(); ++i) {
      const schedule::PieceCost cost = step::time_block(state, i, deck);
      EXPECT_GT(cost.forward, 0.0) << blueprint.blocks[i].name;
      EXPECT_GT(cost.backward_input, 0.0) << blueprint.blocks[i].name;
      EXPECT_EQ(cost.backward_weight > 0.0, is_apart) << blueprint.blocks[i].name;
    }
  }
}

}  // namespace
}  // namespace trireme::test

// Pipelines of a model: every layer on one stage, costs of its parts, what stages need,
// and where tokens are kept.
#include "step/pipeline.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "base/machine.hpp"

namespace trireme::step {
namespace {

using schedule::PipelineSchedule;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

model::Blueprint of_layers(index_t layers) {
  return model::make_blueprint({.layers = layers,
                                .hidden = 768,
                                .heads = 12,
                                .kv_heads = 12,
                                .ffn_hidden = 3072,
                                .sequence = 1024,
                                .vocab = 50257});
}
model::Blueprint gpt2() {
  return of_layers(12);
}

constexpr StepShape kShape{.micro = 4, .sequence = 256, .microbatches = 8};

// Blocks of a model of 12 layers: 0 is the embedding, 13 the head.
std::string text_of(const std::vector<model::BlockRange>& ranges) {
  std::string text;
  for (const model::BlockRange& range : ranges) {
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", range.begin, range.end);
  }
  return text;
}

std::vector<model::BlockRange> ranges_of(const PipelineLayout& layout,
                                         const model::Blueprint& blueprint, int stage) {
  return chunk_ranges(layout, piece_cuts(layout, blueprint), stage);
}

TEST(PipelineLayers, GoRoundTheStages) {
  EXPECT_EQ(text_of(ranges_of({}, gpt2(), 0)), "0-14");
  const PipelineLayout layout{.stages = 2, .chunks = 2, .split = {2, 3, 7, 0}};
  EXPECT_EQ(text_of(ranges_of(layout, gpt2(), 0)), "0-3 6-13");
  EXPECT_EQ(text_of(ranges_of(layout, gpt2(), 1)), "3-6 13-14");
  EXPECT_THAT([&] { ranges_of(layout, of_layers(13), 0); },
              ThrowsMessage<Error>(HasSubstr("13 layers are dealt to 4 pieces that take "
                                             "12")));
  EXPECT_THROW(ranges_of({.stages = 3, .split = {6, 6}}, gpt2(), 0), Error);
}

// The head of GPT-2 124M weighs 5.4 of its layers.
TEST(PipelineCosts, AreThoseOfTheProducts) {
  const schedule::ModelCost cost = modelled_cost(gpt2(), kShape);
  ASSERT_EQ(cost.blocks.size(), 14u);
  for (std::size_t layer = 1; layer <= 12; ++layer) {
    EXPECT_TRUE(cost.blocks[layer].is_layer);
    EXPECT_EQ(cost.blocks[layer].cost.forward, 1.0);
  }
  // Its forward pass has all three of its products.
  const double head = cost.blocks.back().cost.forward;
  EXPECT_NEAR(head, 3 * 5.3, 3 * 0.2);
  EXPECT_LT(cost.blocks.back().cost.backward(), 0.1);
  EXPECT_LT(cost.blocks.front().cost.total(), 0.1);
  const schedule::Split split =
      balanced_split({.stages = 2, .chunks = 1, .split = {}}, gpt2(), kShape);
  // By products alone 9 and 3 would be best; layers may take more than these.
  EXPECT_THAT(split, ElementsAre(8, 4));
  const PipelineLayout layout{.stages = 2, .chunks = 1, .split = split};
  const schedule::Costs costs = modelled_costs(layout, gpt2(), kShape);
  EXPECT_NEAR(costs.pieces[0].forward, 8.01, 1e-9);
  EXPECT_NEAR(costs.pieces[1].forward, 4.0 + head, 1e-9);
}

StageNeeds needs_of(const PipelineLayout& layout, int stage,
                    const StepShape& shape = kShape) {
  return PipelinePlans(layout, gpt2(), shape).needs(stage);
}

TEST(PipelineNeeds, AreThoseOfTheSchedule) {
  PipelineLayout layout{.stages = 3, .split = {5, 5, 2}};
  for (int stage = 0; stage < 3; ++stage) {
    const StageNeeds its = needs_of(layout, stage);
    EXPECT_THAT(its.slots, ElementsAre(3 - stage));  // 1F1B
    EXPECT_THAT(its.held_slots, ElementsAre(0));
    EXPECT_FALSE(its.has_weight_passes);
    EXPECT_EQ(its.batches, 3 - stage);
    EXPECT_GT(its.buffers, 0);
  }
  layout.schedule = PipelineSchedule::zero_bubble;
  EXPECT_TRUE(needs_of(layout, 1).has_weight_passes);
  EXPECT_GE(needs_of(layout, 2).held_slots[0], 1);
  layout.schedule = PipelineSchedule::gpipe;
  EXPECT_THAT(needs_of(layout, 0).slots, ElementsAre(8));
  // A ramp may need more than its end.
  StepShape ramp = kShape;
  ramp.microbatches = 1;
  ramp.other_microbatches = {8};
  EXPECT_THAT(needs_of(layout, 0, ramp).slots, ElementsAre(8));
  EXPECT_THAT(needs_of({}, 0).slots, ElementsAre(1));
}

TEST(PipelinePlans, OfOneStageHaveNoMessages) {
  const PipelinePlans plans({}, gpt2(), kShape);
  EXPECT_EQ(plans.training(0, 8)->actions, schedule::no_pipelining(8));
  EXPECT_EQ(plans.evaluation(0, 5)->actions, schedule::forward_only({1, 1, 5}));
}

// A rank of a deep pipeline plans for itself: of all 270 million passes of this one an
// eighth of a million are its own. Plans of all stages took 16 GB and were not done after
// ten minutes.
TEST(PipelinePlans, OfADeepPipelineAreLocal) {
  constexpr int kStages = 4096, kMicrobatches = 65536;
  const model::Blueprint config = of_layers(kStages);
  StepShape shape = kShape;
  shape.microbatches = kMicrobatches;
  const double before = static_cast<double>(peak_process_bytes());
  for (const auto kind : {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
    PipelineLayout layout{.stages = kStages, .chunks = 1, .split = {}, .schedule = kind};
    layout.split = balanced_split(layout, config, shape);
    const PipelinePlans plans(layout, config, shape);
    const StageNeeds needs = plans.needs(1000);
    EXPECT_THAT(needs.slots,
                ElementsAre(kind == PipelineSchedule::one_f_one_b ? 3096 : 4096));
    EXPECT_LE(needs.buffers, needs.slots[0] + 12);
    EXPECT_EQ(plans.training(kStages - 1, kMicrobatches)->actions.front().kind,
              schedule::Action::Kind::recv_forward);
  }
  EXPECT_LT(static_cast<double>(peak_process_bytes()) - before, 220e6);
}

TEST(PipelineBatches, AreKeptFromFirstToLastPass) {
  const BatchSlots one = batch_slots(schedule::no_pipelining(3), 3);
  EXPECT_THAT(one.of_microbatch, ElementsAre(0, 0, 0));
  EXPECT_EQ(one.count, 1);
  const schedule::PipelineShape shape{2, 1, 4};
  const BatchSlots two = batch_slots(schedule::one_forward_one_backward(shape, 0), 4);
  EXPECT_THAT(two.of_microbatch, ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(two.count, 2);
}

}  // namespace
}  // namespace trireme::step

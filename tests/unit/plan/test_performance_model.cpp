// Steps on a machine: what must hold whatever the numbers are, and the limits.
#include "plan/performance_model.hpp"

#include <gtest/gtest.h>

#include "model/blueprint.hpp"
#include "unit/plan/planned_tally.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::deck_of;
using test::predict;

Machine selene() {
  return test::machine_named("selene");
}

constexpr Case kSmall{.layers = 8,
                      .hidden = 1024,
                      .heads = 16,
                      .sequence = 1024,
                      .micro = 1,
                      .global = 8,
                      .recompute = "none"};

TEST(PerformanceModel, OfOneRankHasNoMessagesAndNoBubble) {
  const StepParts parts = predict(selene(), kSmall).parts;
  EXPECT_GT(parts.compute, 0.0);
  EXPECT_GT(parts.optimizer, 0.0);
  EXPECT_EQ(parts.recompute, 0.0);
  EXPECT_EQ(parts.tensor_messages, 0.0);
  EXPECT_EQ(parts.stage_messages, 0.0);
  EXPECT_EQ(parts.bubble, 0.0);
  EXPECT_EQ(parts.data_messages, 0.0);
  EXPECT_EQ(parts.checkpoint, 0.0);
  EXPECT_EQ(parts.other, 0.0);
}

TEST(PerformanceModel, TakesTwiceAsLongForTwiceTheBatch) {
  Case twice = kSmall;
  twice.global = 2 * kSmall.global;
  const Prediction one = predict(selene(), kSmall), two = predict(selene(), twice);
  EXPECT_NEAR(two.parts.compute, 2.0 * one.parts.compute, 1e-9);
  EXPECT_DOUBLE_EQ(two.parts.optimizer, one.parts.optimizer);
  EXPECT_DOUBLE_EQ(two.model_flops, 2.0 * one.model_flops);
}

// FLOPs are those of the blueprint; what is made again is a third more in the layers.
TEST(PerformanceModel, CountsFlopsAsThePapersDo) {
  Case again = kSmall;
  again.recompute = "full";
  const Prediction plain = predict(selene(), kSmall), full = predict(selene(), again);
  const model::Blueprint blueprint = model::make_blueprint(deck_of(kSmall).model);
  EXPECT_DOUBLE_EQ(plain.model_flops, 8.0 * blueprint.model_flops());
  EXPECT_DOUBLE_EQ(plain.hardware_flops, plain.model_flops);
  // 96 B s l h^2 (1 + s / 6h + V / 16 l h).
  const double formula =
      96.0 * 8 * 1024 * 8 * 1024 * 1024 * (1.0 + 1.0 / 6 + 51200.0 / (16 * 8 * 1024));
  EXPECT_NEAR(full.hardware_flops, formula, 1e-6 * formula);
  EXPECT_GT(full.parts.recompute, 0.2 * full.parts.compute);
  EXPECT_LT(full.parts.recompute, 0.4 * full.parts.compute);
  EXPECT_NEAR(full.parts.compute, plain.parts.compute, 0.05 * plain.parts.compute);
}

// The head costs, so that stages are not alike; with eight times its layers the model's
// pipeline has the bubble of the formula, (p - 1) / m.
TEST(PerformanceModel, HasTheBubbleOfThePipeline) {
  Case layout = kSmall;
  layout.layers = 256;
  layout.pipeline = 8;
  layout.global = 32;
  for (const int chunks : {1, 2, 4}) {
    layout.chunks = chunks;
    const StepParts parts = predict(selene(), layout).parts;
    const double busy = parts.compute + parts.stage_messages;
    EXPECT_NEAR(parts.bubble / busy, 7.0 / 32 / chunks, 0.15 * 7.0 / 32 / chunks)
        << chunks;
  }
}

// All schedules, virtual pipelines of up to eight chunks, stages that are not alike, and
// fewer micro-batches than stages: by estimates a search finds what it simulates.
TEST(PerformanceModel, EstimatesWhatItSimulates) {
  for (const char* const schedule : {"1f1b", "gpipe", "zero_bubble"}) {
    for (const int chunks : {1, 2, 8}) {
      for (const int pipeline : {2, 4, 8}) {
        for (const int microbatches : {2, 4, 8, 32}) {
          Case layout = kSmall;
          layout.layers = chunks == 1 ? 33 : 64;
          layout.pipeline = pipeline;
          layout.chunks = chunks;
          layout.global = microbatches;
          layout.schedule = schedule;
          const double simulated = predict(selene(), layout).seconds();
          const double estimated =
              predict(selene(), layout, Schedule::estimated).seconds();
          EXPECT_NEAR(estimated, simulated, 0.11 * simulated)
              << schedule << ", " << chunks << " chunks, " << pipeline << " stages, "
              << microbatches << " micro-batches";
        }
      }
    }
  }
}

TEST(PerformanceModel, SaysWhenItCannotSimulate) {
  Case layout = kSmall;
  layout.pipeline = 8;
  EXPECT_EQ(predict(selene(), layout).schedule, Schedule::by_rule);
  layout.global = 1 << 20;
  EXPECT_EQ(predict(selene(), layout).schedule, Schedule::estimated);
}

// A run may put more micro-batches into a group than there are stages, where that saves
// time by its own simulation.
TEST(PerformanceModel, SimulatesTheOrderOfARun) {
  Case layout = kSmall;
  layout.layers = 16;
  layout.pipeline = 4;
  layout.chunks = 2;
  layout.global = 10;
  const double by_rule = predict(selene(), layout).seconds();
  const double of_run = predict(selene(), layout, Schedule::of_run).seconds();
  EXPECT_LE(of_run, by_rule * 1.01);
}

TEST(PerformanceModel, SharesTheStateOfZero) {
  Case layout = kSmall;
  layout.data = 8;
  const Prediction whole = predict(selene(), layout);
  layout.zero = 1;
  const Prediction shared = predict(selene(), layout);
  EXPECT_DOUBLE_EQ(shared.parts.optimizer, whole.parts.optimizer / 8.0);
  layout.zero = 3;
  EXPECT_GT(predict(selene(), layout).parts.data_messages, shared.parts.data_messages);
}

// Gradients of 2 bytes in one ring of eight, and little else.
TEST(PerformanceModel, SendsGradientsOnce) {
  Machine machine = selene();
  for (NetworkLevel& level : machine.network) level.latency = 0.0;
  Case layout = kSmall;
  layout.data = 8;
  const config::Deck deck = deck_of(layout);
  const double elements =
      static_cast<double>(model::make_blueprint(deck.model).parameter_count());
  const double seconds = 2.0 * 7 / 8 * 2.0 * elements / machine.network[0].bandwidth;
  EXPECT_NEAR(predict(machine, layout).parts.data_messages, seconds, 0.01 * seconds);
  machine.software.data_overlap = 1.0;
  EXPECT_NEAR(predict(machine, layout).parts.data_messages, 0.0, 1e-9);
}

// With every degree of ZeRO what the step's own tally says, at the same bandwidth. Of
// ZeRO 3 a pass finds the last two layers there, and gathers six of eight.
TEST(PerformanceModel, SendsWhatTheStepDoes) {
  Machine machine = selene();
  for (NetworkLevel& level : machine.network) level.latency = 0.0;
  machine.software.gradient_bytes = 0.0;
  machine.software.zero3_share = 1.0;
  for (int zero = 0; zero <= 3; ++zero) {
    Case layout = kSmall;
    layout.data = 4;
    layout.global = 32;
    layout.zero = zero;
    const config::Deck deck = deck_of(layout);
    const Tally tally = test::planned_tally(deck, 0);
    const double planned = tally_seconds(machine, places_of(deck),
                                         {.sequence = 1024, .head_elements = 64}, tally)
                               .other_messages;
    const double predicted = predict(machine, layout).parts.data_messages;
    EXPECT_NEAR(predicted, planned, (zero == 3 ? 0.2 : 0.02) * planned) << zero;
    EXPECT_GE(predicted, 0.99 * planned) << zero;
  }
}

TEST(PerformanceModel, AddsWhatTheMachineFileSays) {
  Machine machine = selene();
  const Prediction without = predict(machine, kSmall);
  machine.software.step_seconds = 2.0;
  machine.software.microbatch_seconds = 0.5;
  const Prediction with = predict(machine, kSmall);
  EXPECT_NEAR(with.seconds(), without.seconds() + 2.0 + 8 * 0.5, 1e-9);
  EXPECT_NEAR(with.parts.other, 6.0, 1e-9);
}

// 12 bytes of each parameter, every 100 steps, where training waits for it.
TEST(PerformanceModel, WaitsForCheckpointsThatAreNotBeside) {
  config::Deck deck = deck_of(kSmall);
  deck.checkpoint.every = 100;
  PerformanceModel model(selene(), deck);
  EXPECT_EQ(model.predict(deck, Schedule::by_rule).parts.checkpoint, 0.0);
  deck.checkpoint.async = false;
  const double parameters =
      static_cast<double>(model::make_blueprint(deck.model).parameter_count());
  EXPECT_NEAR(model.predict(deck, Schedule::by_rule).parts.checkpoint,
              12.0 * parameters / selene().storage_bandwidth / 100, 1e-12);
  // One at the end of the run is no step's.
  deck.checkpoint.every = 0;
  EXPECT_EQ(model.predict(deck, Schedule::by_rule).parts.checkpoint, 0.0);
}

TEST(PerformanceModel, KnowsWhereGroupsLie) {
  config::Deck deck = deck_of({.layers = 4,
                               .hidden = 64,
                               .heads = 4,
                               .tensor = 4,
                               .pipeline = 2,
                               .data = 3,
                               .global = 3});
  const Places places = places_of(deck);
  EXPECT_EQ(places.tensor.stride, 1);
  EXPECT_EQ(places.gradient.stride, 4);
  EXPECT_EQ(places.gradient.ranks, 3);
  EXPECT_EQ(places.pipeline.stride, 12);
  using config::Axis;
  deck.parallel.order = {Axis::pipeline, Axis::tensor, Axis::context, Axis::data};
  EXPECT_EQ(places_of(deck).pipeline.stride, 1);
  EXPECT_EQ(places_of(deck).tensor.stride, 2);
  EXPECT_EQ(places_of(deck).gradient.stride, 8);
}

}  // namespace
}  // namespace trireme::plan

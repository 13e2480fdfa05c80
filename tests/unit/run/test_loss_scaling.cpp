// What becomes of a step whose gradients are not finite, in each type.
#include "run/loss_scaling.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "config/load.hpp"

namespace trireme::run {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

config::Deck deck_of(const std::string& precision) {
  return config::parse(
      "model: {layers: 1, hidden: 8, heads: 2, sequence: 8, vocab: 300}\n"
      "data: {train: corpus.h5}\nprecision: {" +
          precision + "}\n",
      "deck");
}

optim::StepReport report_of(double loss, double norm) {
  optim::StepReport report;
  report.losses[0] = {loss, 1.0};
  report.grad_norm = norm;
  return report;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const optim::StepReport kGood = report_of(5.0, 1.0);
const optim::StepReport kOverflow = report_of(5.0, kInfinity);

// One step of a run: what is said of it.
std::string step(LossScaling& scaling, ckpt::TrainingState& state,
                 const optim::StepReport& report) {
  if (!report.is_finite()) ++state.skipped_steps;
  ++state.step;
  return scaling.note_step(report, state);
}

TEST(LossScalingOfRun, OnlyFp16ScalesAndSkips) {
  for (const char* type : {"fp32", "bf16"}) {
    ckpt::TrainingState state;
    const LossScaling scaling(deck_of(std::string("compute: ") + type), state);
    EXPECT_EQ(scaling.scale(), 1.0);
    EXPECT_EQ(state.loss_scale, 1.0);
    EXPECT_FALSE(scaling.can_skip(kOverflow));
  }
  ckpt::TrainingState state;
  const LossScaling scaling(deck_of("compute: fp16"), state);
  EXPECT_EQ(scaling.scale(), 65536.0);
  EXPECT_EQ(state.loss_scale, 65536.0);
  EXPECT_TRUE(scaling.can_skip(kOverflow));
  EXPECT_FALSE(scaling.can_skip(report_of(kInfinity, kInfinity)));  // no scale mends that
}

TEST(LossScalingOfRun, SkippedStepsAreToldAndCountForNoUpdate) {
  ckpt::TrainingState state;
  LossScaling scaling(deck_of("compute: fp16"), state);
  EXPECT_EQ(next_update(state), 1);
  EXPECT_THAT(step(scaling, state, kGood), IsEmpty());
  EXPECT_EQ(next_update(state), 2);
  EXPECT_THAT(
      step(scaling, state, kOverflow),
      HasSubstr("step 2: a gradient overflowed; weights are left as they were, the "
                "loss scale stays at 65536 (1 of 2 steps left out so far)"));
  EXPECT_EQ(next_update(state), 2);
  EXPECT_THAT(
      step(scaling, state, kOverflow),
      HasSubstr("the loss scale, 65536, is now 32768 (2 of 3 steps left out so far)"));
  EXPECT_EQ(state.loss_scale, 32768.0);
}

TEST(LossScalingOfRun, GivesUpAtTheMinimum) {
  ckpt::TrainingState state;
  LossScaling scaling(
      deck_of("compute: fp16, loss_scale: {initial: 2, minimum: 1, hysteresis: 1}"),
      state);
  EXPECT_TRUE(scaling.can_skip(kOverflow));
  step(scaling, state, kOverflow);
  EXPECT_EQ(scaling.scale(), 1.0);
  EXPECT_FALSE(scaling.can_skip(kOverflow));
}

TEST(LossScalingOfRun, ResumesItsStateAndBeginsAnewAfterAnotherType) {
  const config::Deck fp16 = deck_of("compute: fp16"), bf16 = deck_of("compute: bf16");
  ckpt::TrainingState state;
  LossScaling first(fp16, state);
  for (int i = 0; i < 3; ++i) step(first, state, kOverflow);
  EXPECT_EQ(state.loss_scale, 16384.0);
  ckpt::TrainingState fresh;
  LossScaling second(fp16, fresh);
  second.resume(state);
  EXPECT_EQ(second.scale(), 16384.0);
  step(second, state, kOverflow);  // no patience is left
  EXPECT_EQ(second.scale(), 8192.0);
  LossScaling other(bf16, fresh);
  other.resume(state);
  EXPECT_EQ(state.loss_scale, 1.0);
  LossScaling back(fp16, fresh);
  back.resume(state);
  EXPECT_EQ(back.scale(), 65536.0);
}

}  // namespace
}  // namespace trireme::run

// What becomes of a step whose gradients are not finite, in each type.
#include "run/loss_scaling.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <optional>
#include <string>

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
  EXPECT_THAT(second.resume(fp16, false, state), IsEmpty());
  EXPECT_EQ(second.scale(), 16384.0);
  step(second, state, kOverflow);  // no patience is left
  EXPECT_EQ(second.scale(), 8192.0);
  LossScaling other(bf16, fresh);
  EXPECT_THAT(other.resume(fp16, false, state), IsEmpty());
  EXPECT_EQ(state.loss_scale, 1.0);
  LossScaling back(fp16, fresh);
  EXPECT_THAT(back.resume(bf16, false, state), IsEmpty());
  EXPECT_EQ(back.scale(), 65536.0);
}

// A run in fp16 with a dynamic scale that came down to 16384, and its next start with
// other keys: what that says.
class LossScalingResumed : public ::testing::Test {
 protected:
  LossScalingResumed() {
    LossScaling first(before_, state_);
    for (int i = 0; i < 3; ++i) step(first, state_, kOverflow);
  }
  std::string resume(const std::string& keys, bool names_initial = false) {
    scaling_.emplace(deck_of("compute: fp16, loss_scale: {" + keys + "}"), fresh_);
    return scaling_->resume(before_, names_initial, state_);
  }
  const config::Deck before_ = deck_of("compute: fp16");
  ckpt::TrainingState state_, fresh_;
  std::optional<LossScaling> scaling_;
};

TEST_F(LossScalingResumed, TakesANewInitial) {
  EXPECT_EQ(resume("initial: 512"),
            "the loss scale is 512 from step 4 on; it had come to 16384");
  EXPECT_EQ(state_.loss_scale, 512.0);
  step(*scaling_, state_, kOverflow);  // the new scale has its whole hysteresis
  EXPECT_EQ(scaling_->scale(), 512.0);
}

TEST_F(LossScalingResumed, TakesANewHysteresis) {
  EXPECT_THAT(resume("hysteresis: 3"), IsEmpty());
  for (const double want : {16384.0, 16384.0, 8192.0}) {
    step(*scaling_, state_, kOverflow);
    EXPECT_EQ(scaling_->scale(), want);
  }
}

TEST_F(LossScalingResumed, IsNotBelowARaisedMinimum) {
  EXPECT_EQ(resume("minimum: 32768"),
            "the loss scale is 32768 from step 4 on; it had come to 16384");
  EXPECT_FALSE(scaling_->can_skip(kOverflow));
}

TEST_F(LossScalingResumed, BecomesConstantWhereItIs) {
  EXPECT_THAT(resume("dynamic: false"),
              HasSubstr("the loss scale stays at 16384, to which it had come"));
  EXPECT_EQ(scaling_->scale(), 16384.0);
  for (int i = 0; i < 15; ++i) {
    EXPECT_TRUE(scaling_->can_skip(kOverflow)) << i;
    step(*scaling_, state_, kOverflow);
  }
  EXPECT_FALSE(scaling_->can_skip(kOverflow));
}

TEST_F(LossScalingResumed, ConstantIsWhatTheUserNames) {
  EXPECT_EQ(resume("dynamic: false, initial: 65536", true),
            "the loss scale is 65536 from step 4 on; it had come to 16384");
}

// A constant scale that is named at every start goes on with its count of overflows.
TEST(LossScalingOfRun, ConstantScaleResumesItsState) {
  const config::Deck deck =
      deck_of("compute: fp16, loss_scale: {dynamic: false, initial: 128}");
  ckpt::TrainingState state, fresh;
  LossScaling first(deck, state);
  for (int i = 0; i < 15; ++i) step(first, state, kOverflow);
  LossScaling second(deck, fresh);
  EXPECT_THAT(second.resume(deck, true, state), IsEmpty());
  EXPECT_FALSE(second.can_skip(kOverflow));
}

TEST(LossScalingOfRun, SaysWhatToDoAboutWhatItCannotMend) {
  const auto advice_of = [](const std::string& keys, const optim::StepReport& report) {
    ckpt::TrainingState state;
    return LossScaling(deck_of(keys), state).advice(report);
  };
  EXPECT_THAT(advice_of("compute: bf16", kOverflow), IsEmpty());
  EXPECT_THAT(advice_of("compute: fp16", report_of(kInfinity, kInfinity)),
              HasSubstr("no loss scale changes what the forward pass makes"));
  EXPECT_THAT(
      advice_of("compute: fp16, loss_scale: {initial: 4, minimum: 4}", kOverflow),
      HasSubstr("The loss scale is 4, and precision.loss_scale.minimum, 4, lets it"));
  EXPECT_THAT(
      advice_of("compute: fp16, loss_scale: {dynamic: false, initial: 4096}", kOverflow),
      HasSubstr("16 steps in a row overflowed at the constant loss scale 4096"));
}

}  // namespace
}  // namespace trireme::run

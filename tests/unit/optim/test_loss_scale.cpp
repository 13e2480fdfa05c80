// Megatron-LM's rules of the dynamic loss scale, step by step.
#include "optim/loss_scale.hpp"

#include <gtest/gtest.h>

namespace trireme::optim {
namespace {

TEST(LossScaleRules, GrowsAfterAWindowOfFiniteSteps) {
  LossScale scale({.initial = 8, .window = 3});
  for (const double want : {8, 8, 16, 16, 16, 32}) {
    scale.update(false);
    EXPECT_EQ(scale.scale(), want);
  }
}

// An overflow begins the window anew; the second halves the scale, and so does each after
// it, until the scale has grown.
TEST(LossScaleRules, HalvesFromTheHysteresisOn) {
  LossScale scale({.initial = 64, .minimum = 8, .window = 2, .hysteresis = 2});
  const struct {
    bool overflow;
    double scale;
  } steps[] = {{true, 64}, {false, 64}, {true, 32}, {true, 16}, {false, 16}, {false, 32},
               {true, 32}, {true, 16},  {true, 8},  {true, 8},  {false, 8},  {false, 16}};
  for (const auto& step : steps) {
    scale.update(step.overflow);
    EXPECT_EQ(scale.scale(), step.scale);
  }
}

TEST(LossScaleRules, SaysWhenItCanFallNoFurther) {
  LossScale scale({.initial = 16, .minimum = 8, .hysteresis = 1});
  EXPECT_TRUE(scale.can_skip());
  scale.update(true);
  EXPECT_FALSE(scale.can_skip());
}

// The minimum may have been raised since the checkpoint; an overflow never makes the
// scale larger, whatever the rules.
TEST(LossScaleRules, KeepsToAMinimumThatWasRaised) {
  LossScale scale({.initial = 64, .minimum = 8, .hysteresis = 1});
  scale.restore({.scale = 2, .finite_steps = 3, .overflows_left = 1});
  EXPECT_EQ(scale.scale(), 8);
  EXPECT_FALSE(scale.can_skip());
  LossScale below({.initial = 4, .minimum = 8, .hysteresis = 1});
  below.update(true);
  EXPECT_EQ(below.scale(), 4);
}

TEST(LossScaleRules, GoesOnFromItsState) {
  const LossScaleRules rules{.initial = 16, .window = 4};
  LossScale whole(rules), first(rules);
  const bool overflows[] = {false, true, false, false, true, false, true, false, false};
  for (int i = 0; i < 4; ++i) first.update(overflows[i]);
  LossScale second(rules);
  second.restore(first.state());
  for (int i = 0; i < 4; ++i) whole.update(overflows[i]);
  for (int i = 4; i < 9; ++i) {
    whole.update(overflows[i]);
    second.update(overflows[i]);
    EXPECT_EQ(second.scale(), whole.scale()) << i;
  }
}

TEST(LossScaleRules, ConstantStays) {
  LossScale scale({.dynamic = false, .initial = 128, .window = 1, .hysteresis = 1});
  for (const bool overflow : {true, false, true}) scale.update(overflow);
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_TRUE(scale.can_skip());
  scale.restore({.scale = 4});
  for (const bool overflow : {true, false, true}) scale.update(overflow);
  EXPECT_EQ(scale.scale(), 4);
}

// The 16th overflow in a row is not left out; a finite step gives all patience back, and
// a checkpoint keeps what is left of it.
TEST(LossScaleRules, ConstantHasPatienceForSoManyOverflows) {
  const LossScaleRules rules{.dynamic = false, .initial = 128};
  LossScale scale(rules);
  for (int i = 0; i < 15; ++i) {
    EXPECT_TRUE(scale.can_skip()) << i;
    scale.update(true);
  }
  EXPECT_FALSE(scale.can_skip());
  LossScale restored(rules);
  restored.restore(scale.state());
  EXPECT_FALSE(restored.can_skip());
  scale.update(false);
  EXPECT_TRUE(scale.can_skip());
  EXPECT_EQ(scale.state().overflows_left, LossScale::kConstantPatience);
}

}  // namespace
}  // namespace trireme::optim

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
  EXPECT_FALSE(scale.is_least());
  scale.update(true);
  EXPECT_TRUE(scale.is_least());
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
  scale.restore({.scale = 4});
  for (const bool overflow : {true, false, true}) scale.update(overflow);
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_FALSE(scale.is_least());
}

}  // namespace
}  // namespace trireme::optim

// Mean and median of the times of steps, of few and of very many.
#include "report/step_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace trireme::report {
namespace {

TEST(StepTimes, NoneIsNotKnown) {
  const StepTimes times;
  EXPECT_EQ(times.count(), 0);
  EXPECT_EQ(times.sum(), 0.0);
  EXPECT_TRUE(std::isnan(times.mean()));
  EXPECT_TRUE(std::isnan(times.median()));
}

TEST(StepTimes, OneSlowStepMovesTheMeanAndNotTheMedian) {
  StepTimes times;
  for (const double seconds : {0.3, 9.0, 0.2, 0.1, 0.25}) times.add(seconds);
  EXPECT_EQ(times.median(), 0.25);
  EXPECT_NEAR(times.mean(), 1.97, 1e-12);
  times.add(0.35);
  EXPECT_DOUBLE_EQ(times.median(), 0.275);  // between the two in the middle
  times.clear();
  times.add(4.0);
  EXPECT_EQ(times.median(), 4.0);
  EXPECT_EQ(times.mean(), 4.0);
}

// Of every number of steps, the kept ones are spaced evenly over all of them.
TEST(StepTimes, ManyStepsTakeNoMoreMemoryAndKeepTheMedian) {
  StepTimes times;
  constexpr int kSteps = 100'003;
  for (int i = 0; i < kSteps; ++i) {
    times.add(i);
    if (i % 997 != 0 && i + 1 != kSteps) continue;
    ASSERT_EQ(times.count(), i + 1);
    // Half of them are below it, but for one stride.
    const double stride = std::max(1.0, 2.0 * i / static_cast<double>(StepTimes::kMost));
    ASSERT_NEAR(times.median(), 0.5 * i, stride) << i;
  }
  EXPECT_NEAR(times.mean(), 0.5 * (kSteps - 1), 1e-6);
}

}  // namespace
}  // namespace trireme::report

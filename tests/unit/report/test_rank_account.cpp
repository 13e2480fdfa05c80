// What a rank's steps are said to go into: parts add up, other phases are no part of a
// step, the first step is taken for one like the second, and slow steps are explained.
#include "report/rank_account.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "report/slow_steps.hpp"

namespace trireme::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(RankAccountSamples, AreEverFurtherApart) {
  const ProfileOptions samples{.samples = true};
  int first = 0, later = 0;
  for (std::int64_t step = 1; step <= 10000; ++step) {
    const bool has = samples.has(step, 0);
    if (step <= 60) first += has ? 1 : 0;
    if (step > 60) later += has ? 1 : 0;
  }
  EXPECT_FALSE(samples.has(1, 0));
  EXPECT_TRUE(samples.has(2, 0));
  EXPECT_EQ(first, 8);
  EXPECT_EQ(later, 10000 / 61);
  const ProfileOptions asked{.most_steps = 2};
  EXPECT_FALSE(asked.has(2, 0));
  EXPECT_TRUE(asked.has(3, 0));
  EXPECT_FALSE(asked.has(5, 2));
}

class RankAccountOfOne : public testing::Test {
 protected:
  // A step whose parts are sleeps, with a validation within.
  void step(std::int64_t number, int forward_ms) {
    account_.enter_steps();
    {
      const PhaseRegion steps(timers_, Phase::step);
      {
        const Region region(timers_, Section::forward);
        sleep_ms(forward_ms);
      }
      {
        const Region region(timers_, Section::data);
        sleep_ms(2);
      }
      account_.leave_steps();
      {
        const PhaseRegion validation(timers_, Phase::validation);
        const Region region(timers_, Section::forward);
        sleep_ms(10);
      }
      account_.enter_steps();
    }
    account_.leave_steps();
    account_.end_step(number);
  }

  Timers timers_;
  comm::ProcessGroups groups_ = comm::make_groups_of_one();
  StepProfile profile_{{.samples = true}, Exec(), timers_};
  RankAccount account_{{.timers = timers_, .groups = groups_, .profile = profile_}};
};

TEST_F(RankAccountOfOne, PartsAddUpToTheTimeOfTheLoop) {
  for (int i = 1; i <= 3; ++i) step(i, 4);
  const auto in_steps = timers_.seconds(Phase::step);
  const auto validation = timers_.seconds(Phase::validation);
  const RankAccount::Taken taken = account_.take();
  ASSERT_EQ(taken.steps.size(), 3u);
  double steps = 0.0;
  for (const RankAccount::Step& one : taken.steps) {
    steps += one.seconds.step();
    if (one.number == 1) continue;  // it has the parts of the second
    EXPECT_GE(one.seconds[TimePart::passes], 0.004);
    EXPECT_GE(one.seconds[TimePart::input], 0.002);
    EXPECT_GE(one.seconds[TimePart::host], 0.0);
  }
  double all = 0.0, validated = 0.0;
  for (const double seconds : in_steps) all += seconds;
  for (const double seconds : validation) validated += seconds;
  EXPECT_NEAR(steps + taken.between[TimePart::warm_up], all, 1e-9);
  EXPECT_NEAR(taken.between[TimePart::validation], validated, 1e-9);
  EXPECT_GE(validated, 0.030);
  EXPECT_EQ(account_.axes().back(), kWorldAxis);
  // Nothing is taken twice.
  const RankAccount::Taken again = account_.take();
  EXPECT_TRUE(again.steps.empty());
  EXPECT_EQ(again.between[TimePart::validation], 0.0);
}

TEST_F(RankAccountOfOne, TheFirstStepIsTakenForOneLikeTheSecond) {
  step(1, 60);
  step(2, 5);
  const RankAccount::Taken taken = account_.take();
  ASSERT_EQ(taken.steps.size(), 2u);
  EXPECT_EQ(taken.steps[0].number, 1);
  EXPECT_DOUBLE_EQ(taken.steps[0].seconds.step(), taken.steps[1].seconds.step());
  EXPECT_GT(taken.between[TimePart::warm_up], 0.0);
}

TEST_F(RankAccountOfOne, AStepAloneIsItself) {
  step(1, 5);
  const RankAccount::Taken taken = account_.take();
  ASSERT_EQ(taken.steps.size(), 1u);
  EXPECT_GE(taken.steps[0].seconds.step(), 0.005);
  EXPECT_EQ(taken.between[TimePart::warm_up], 0.0);
  step(2, 1);
  EXPECT_EQ(account_.take().between[TimePart::warm_up], 0.0);
}

// A first step that was taken by itself is no measure of passes, and counts as none.
TEST_F(RankAccountOfOne, PassesOfAStepAreOfThoseThatWereMeasured) {
  step(1, 5);
  account_.take();
  EXPECT_EQ(account_.passes_of_a_step(), 0.0);
  step(2, 5);
  step(3, 5);
  EXPECT_GE(account_.passes_of_a_step(), 0.005);
}

TEST_F(RankAccountOfOne, WaitsForAllAreMessages) {
  step(1, 1);
  account_.enter_steps();
  {
    const PhaseRegion steps(timers_, Phase::step);
    sleep_ms(20);
    account_.add_wait(0.015);
  }
  account_.leave_steps();
  account_.end_step(2);
  const RankAccount::Taken taken = account_.take();
  EXPECT_DOUBLE_EQ(taken.steps[1].seconds.axes().back(), 0.015);
  EXPECT_DOUBLE_EQ(taken.steps[1].seconds.messages(), 0.015);
  EXPECT_GE(taken.steps[1].seconds[TimePart::host], 0.005 - 1e-6);
}

TEST(RankAccountSlowSteps, IsTheOneThatTookMuchLonger) {
  SlowSteps steps;
  steps.add(1, 9.0);  // the first of a start
  for (int i = 2; i <= 10; ++i) steps.add(i, 1.0 + 0.01 * i);
  EXPECT_FALSE(steps.take().has_value());
  steps.add(11, 1.4);
  EXPECT_FALSE(steps.take().has_value());
  steps.add(12, 2.0);
  steps.add(13, 3.0);
  steps.add(14, 1.0);
  const auto slow = steps.take();
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->step, 13);
  EXPECT_NEAR(slow->usual, 1.07, 0.02);
  EXPECT_FALSE(steps.take().has_value());
  // Of steps of milliseconds everything is noise.
  SlowSteps quick;
  for (int i = 1; i <= 10; ++i) quick.add(i, 0.001);
  quick.add(11, 0.03);
  EXPECT_FALSE(quick.take().has_value());
}

TEST(RankAccountSlowSteps, SayWhoWasLongerAtWhat) {
  const std::vector<std::string> axes = {"tensor", "gradient"};
  const SlowStep slow{.step = 120, .seconds = 3.1, .usual = 1.5};
  std::vector<PartSeconds> excess(3, PartSeconds(2));
  excess[1][TimePart::input] = 1.5;
  excess[0].axes()[1] = excess[2].axes()[1] = 1.6;
  EXPECT_THAT(describe(slow, excess, axes),
              AllOf(HasSubstr("step 120 took 3.1s, 2.1 times"),
                    HasSubstr("rank 1 was 1.5s longer than usual in waiting for")));
  excess[1] = PartSeconds(2);
  EXPECT_THAT(describe(slow, excess, axes),
              AllOf(HasSubstr("no rank was busy for longer"),
                    HasSubstr("messages along gradient")));
}

}  // namespace
}  // namespace trireme::report

// batch.ramp_up in whole runs: steps take the samples of the ramp, on two ranks the same
// as on one, and a restart on the way up changes nothing.
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

class RampUp : public TrainingRuns {
 protected:
  // Four samples a step; after 12 of them eight, after 24 twelve.
  static constexpr std::array<std::int64_t, 9> kSizes = {4, 4, 4, 8, 8, 12, 12, 12, 12};
  static constexpr int kSteps = static_cast<int>(kSizes.size());
  static constexpr int kMiddle = 4;  // one step of eight is done, one is to come

  void run(const std::string& name, int ranks, const Arguments& more = {}) const {
    Arguments arguments = {"train", "deck.yaml", "--run-dir", name};
    for (const std::string& setting :
         {std::string("batch.global=12"),
          std::string("batch.ramp_up={start: 4, increment: 4, samples: 24}"),
          std::string("run.steps=") + std::to_string(kSteps),
          std::string("run.sample_every=0")}) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(ranks, arguments, options(1));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  void run_to_the_middle(const std::string& name, int ranks) const {
    run(name, ranks, {"--set", "run.steps=" + std::to_string(kMiddle)});
  }

  // Every step there, with as many samples as the ramp says.
  void expect_ramp(const std::string& name) const {
    const std::vector<report::StepRecord> steps = metrics(name).steps;
    ASSERT_EQ(steps.size(), kSizes.size());
    std::int64_t samples = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      samples += kSizes[i];
      EXPECT_EQ(steps[i].step, static_cast<std::int64_t>(i + 1));
      EXPECT_EQ(steps[i].samples, samples) << "step " << i + 1;
      EXPECT_EQ(steps[i].tokens, samples * 16) << "step " << i + 1;
    }
  }
  void expect_same_losses(const std::string& a, const std::string& b) const {
    const report::MetricsLog one = metrics(a), other = metrics(b);
    ASSERT_EQ(one.steps.size(), other.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_NEAR(other.steps[i].loss, one.steps[i].loss, 5e-6 * one.steps[i].loss)
          << "step " << i + 1 << " of " << b;
    }
  }
};

TEST_F(RampUp, OnOneRankAndOnTwo) {
  run("one", 1);
  expect_ramp("one");
  run("two", 2);
  expect_ramp("two");
  expect_same_losses("one", "two");
}

TEST_F(RampUp, RestartOnTheWayUp) {
  for (const int ranks : {1, 2}) {
    const std::string whole = "whole" + std::to_string(ranks);
    const std::string parts = "parts" + std::to_string(ranks);
    run(whole, ranks);
    run_to_the_middle(parts, ranks);
    EXPECT_EQ(metrics(parts).steps.back().samples, 4 + 4 + 4 + 8);
    run(parts, ranks, {"--resume", "auto"});
    expect_ramp(parts);
    expect_same_checkpoint(newest(whole), newest(parts));
    expect_same_metrics(whole, parts, kSteps);
  }
}

// Samples of each start, whatever the ramp was before it: twelve are three steps at its
// beginning, two in its middle and one behind it.
TEST_F(RampUp, StopsAfterSamples) {
  run("whole", 1);
  for (const std::size_t steps : {3u, 5u, 6u}) {
    run("parts", 1, {"--set", "run.stop_after=12 samples", "--resume", "auto"});
    EXPECT_EQ(metrics("parts").steps.size(), steps);
  }
  run("parts", 1, {"--resume", "auto"});
  expect_ramp("parts");
  expect_same_checkpoint(newest("whole"), newest("parts"));
  expect_same_metrics("whole", "parts", kSteps);
}

TEST_F(RampUp, RestartOnMoreRanks) {
  run("whole", 1);
  run_to_the_middle("parts", 1);
  run("parts", 2, {"--resume", "auto"});
  expect_ramp("parts");
  expect_same_losses("whole", "parts");
}

}  // namespace
}  // namespace trireme::test

// The system's clock is set while a run is under way: times that it measures stay what
// they were. And an end of the job that lies in the past.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Clock : public TrainingRuns {
 protected:
  // From the moment that the run has its records on, its clock is a day ahead, or behind.
  RunOptions shifted(const std::string& run, int seconds) const {
    RunOptions result = options(1);
    result.environment["LD_PRELOAD"] = std::getenv("TRIREME_SHIFT_CLOCK_LIBRARY");
    result.environment["TRIREME_TEST_CLOCK_GATE"] =
        (scratch_ / run / "train.jsonl").string();
    result.environment["TRIREME_TEST_CLOCK_SHIFT"] = std::to_string(seconds);
    return result;
  }
  nlohmann::json effective_time(const std::string& run) const {
    return nlohmann::json::parse(io::read_file(scratch_ / run / "report.json"))
        .at("effective_time");
  }

  static constexpr int kDay = 86400;
};

TEST_F(Clock, ThatIsSetLeavesTimesAlone) {
  for (const int shift : {kDay, -kDay}) {
    const std::string run = "run" + std::to_string(shift);
    const RunResult result =
        trireme({"train", "deck.yaml", "--run-dir", run}, shifted(run, shift));
    ASSERT_EQ(result.status, 0) << result.out << result.err;
    const auto time = effective_time(run);
    EXPECT_GT(time.at("share"), 0.0) << result.out;
    EXPECT_LE(time.at("share"), 1.0) << result.out;
    EXPECT_GT(time.at("seconds_running"), 0.0) << result.out;
    EXPECT_LT(time.at("seconds_running"), 3600.0) << result.out;
    EXPECT_THAT(result.out, Not(HasSubstr("24h"))) << result.out;
    for (const auto& record : metrics(run).steps) {
      EXPECT_GE(record.seconds, 0.0);
      EXPECT_LT(record.seconds, 3600.0);
    }
  }
}

// The rank that reports has not been silent for a day.
TEST_F(Clock, ThatIsSetMakesNobodySilent) {
  const RunResult result = trireme_on_ranks(
      2,
      {"train", "deck.yaml", "--run-dir", "run", "--set", "run.hang_timeout=2s", "--set",
       "batch.micro=1", "--fault", "stop:rank=1,phase=step,step=3"},
      shifted("run", kDay));
  EXPECT_NE(result.status, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("What each rank does"),
                                HasSubstr("the process is stopped (SIGSTOP")));
  EXPECT_THAT(result.err, Not(ContainsRegex("[0-9][0-9][0-9][0-9][.][0-9] s")));
}

// Of a shell that was kept from an earlier job: no reason to make a step a start.
TEST_F(Clock, EndsOfJobsThatHavePassedAreNotBelieved) {
  RunOptions stale = options(1);
  stale.environment["SLURM_JOB_END_TIME"] = "1700000000";
  stale.environment["SLURM_JOB_ID"] = "4711";
  stale.environment["PATH"] = scratch_.path().string();
  const RunResult result = trireme({"train", "deck.yaml", "--run-dir", "run"}, stale);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(metrics("run").steps.size(), 13u);
  EXPECT_THAT(result.err, HasSubstr("warning: SLURM_JOB_END_TIME is '1700000000'"));
}

// Two jobs' time for a step, again and again: refused where steps take little of it.
TEST_F(Clock, StartsOfOneStepAreIdle) {
  const Arguments short_of_time = {"--resume", "auto",
                                   "--set",    "run.time_limit=60s",
                                   "--set",    "checkpoint.wall_time_margin=60s",
                                   "--set",    "run.max_idle_starts=2",
                                   "--set",    "run.validate_every=0"};
  for (int start = 0; start < 2; ++start) {
    ASSERT_EQ(train("run", short_of_time).status, 75) << start;
  }
  const RunResult refused = train("run", short_of_time);
  EXPECT_EQ(refused.status, 1) << refused.out << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("'run' has no new step saved in the last 2 starts, "
                                     "or one in a small part of their time"));
  EXPECT_EQ(train("run", {"--resume", "auto"}).status, 0);
}

// What SLURM's variables hold is not always SLURM's.
TEST_F(Clock, NamesOfJobsThatAreNoneAreIgnored) {
  RunOptions garbage = options(1);
  for (const char* name : {"SLURM_JOB_ID", "SLURMD_NODENAME", "SLURM_JOB_END_TIME",
                           "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}) {
    garbage.environment[name] = "\xff\n";
  }
  const RunResult result = trireme({"train", "deck.yaml", "--run-dir", "run", "--set",
                                    "run.steps=1", "--set", "run.preflight=true"},
                                   garbage);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("SLURM_JOB_END_TIME is '?\?', which is no end"));
}

}  // namespace
}  // namespace trireme::test

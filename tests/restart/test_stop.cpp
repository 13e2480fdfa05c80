// Stopped in the middle: by a signal or the time limit (checkpoint, status 75), killed,
// or as run.stop_after asks (checkpoint, status 0); the restart ends where the
// uninterrupted run does, bit by bit.
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class StopTraining : public TrainingRuns {
 protected:
  static constexpr int kSteps = 600;

  StopTraining() {
    write_deck("long.yaml", kSteps);
    // Checkpoints far apart: the one of the signal is none of the others.
    for (const char* key :
         {"checkpoint.every=250", "run.validate_every=200", "run.sample_every=0"}) {
      settings_.insert(settings_.end(), {"--set", key});
    }
  }

  RunResult start(const std::string& run, const Arguments& more = {}) const {
    Arguments arguments = settings_;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(run, arguments, "long.yaml", 1);
  }

  // A start that gets this signal once it has logged `step`, and published the checkpoint
  // of that name, if any. On a machine so busy that it ended before, another try.
  RunResult start_and_signal(const std::string& run, const std::string& signal, int step,
                             const std::string& checkpoint = "",
                             const Arguments& more = {}) const {
    const char* binary = std::getenv("TRIREME_BINARY");
    const std::string script =
        "\"$@\" & child=$!\n"
        "while kill -0 $child 2>/dev/null; do\n"
        "  if grep -q '\"step\": " +
        std::to_string(step) + ",' " + run + "/train.jsonl 2>/dev/null && [ -e " + run +
        "/checkpoints/" + checkpoint + " ]; then kill -" + signal +
        " $child; break; fi\n"
        "  sleep 0.01\n"
        "done\n"
        "wait $child";
    Arguments command = {"sh",    "-c",        script,      "sh", binary,
                         "train", "long.yaml", "--run-dir", run};
    command.insert(command.end(), settings_.begin(), settings_.end());
    command.insert(command.end(), more.begin(), more.end());
    RunResult result;
    for (int attempt = 0; attempt < 3; ++attempt) {
      result = test::run(command, options(1));
      if (result.status != 0) break;
      std::filesystem::remove_all(scratch_ / run);
    }
    return result;
  }

  Arguments settings_;
};

TEST_F(StopTraining, BySignalAndByKill) {
  ASSERT_EQ(start("whole").status, 0);

  const RunResult stopped = start_and_signal("run", "TERM", 3);
  ASSERT_EQ(stopped.status, 75) << stopped.out << stopped.err;
  const ckpt::CheckpointReader saved(newest("run"));
  EXPECT_GT(saved.state().step, 2);
  EXPECT_LT(saved.state().step, kSteps);
  EXPECT_THAT(stopped.out, HasSubstr("Step " + std::to_string(saved.state().step) +
                                     " of 600 is saved.\n"));
  EXPECT_THAT(stopped.out, HasSubstr("To go on:\n  "));
  EXPECT_THAT(stopped.out, ContainsRegex("stopped early: .*TERM"));
  EXPECT_EQ(metrics("run").steps.size(), static_cast<std::size_t>(saved.state().step));

  // Killed after another checkpoint: what was logged beyond it is cut.
  const RunResult killed =
      start_and_signal("run", "KILL", 270, "step_00000250", {"--resume", "auto"});
  ASSERT_EQ(killed.status, 128 + 9) << killed.out << killed.err;
  EXPECT_GE(metrics("run").steps.size(), 269u);
  EXPECT_EQ(newest("run").filename(), "step_00000250");

  const RunResult rest = start("run", {"--resume", "auto"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", kSteps);
}

// A limit that is all margin: a checkpoint after the first step, status 75, and the
// restart ends as if nothing had been.
TEST_F(StopTraining, ByTheTimeLimit) {
  ASSERT_EQ(train("whole").status, 0);
  const RunResult stopped = train(
      "run", {"--set", "run.time_limit=60s", "--set", "checkpoint.wall_time_margin=60s"});
  ASSERT_EQ(stopped.status, 75) << stopped.out << stopped.err;
  EXPECT_EQ(newest("run").filename(), "step_00000001");
  EXPECT_THAT(stopped.out, ContainsRegex("stopped early: wall-time limit of .* left"));
  EXPECT_THAT(stopped.out, HasSubstr("Step 1 of 13 is saved"));

  // No change of the run: another limit, or none.
  const RunResult rest = train("run", {"--resume", "auto"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

class StopAfter : public TrainingRuns {
 protected:
  RunResult start(const std::string& run, const std::string& stop_after,
                  const Arguments& more = {}, int ranks = 1) const {
    Arguments arguments = {"train",    "deck.yaml", "--run-dir",
                           run,        "--set",     "run.stop_after=" + stop_after,
                           "--resume", "auto"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ranks == 1 ? trireme(arguments, options(1))
                      : trireme_on_ranks(ranks, arguments, options(1));
  }
  static void expect_stop(const RunResult& result, const std::string& words) {
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    std::string out = result.out;  // each line whole again, wherever it was broken
    for (std::size_t at; (at = out.find("\n  ")) != std::string::npos;) {
      out.replace(at, 3, " ");
    }
    EXPECT_THAT(out, HasSubstr("stopped " + words + ".\nResult: step "));
    EXPECT_THAT(result.out, HasSubstr("To go on:\n  "));
    EXPECT_THAT(result.out, HasSubstr(" --resume auto"));
  }
  int stops_recorded(const std::string& run) const {
    const std::string text = io::read_file(scratch_ / run / "starts.jsonl");
    int count = 0;
    for (std::size_t at = text.find("stop_after"); at != std::string::npos;
         at = text.find("stop_after", at + 1)) {
      ++count;
    }
    return count;
  }
};

// In every unit, counted from where a start begins. The warm-up is longer than the first
// starts: a stop is no schedule.
TEST_F(StopAfter, ASequenceOfStartsEndsAsOne) {
  const Arguments warmup = {"--set", "optimizer.warmup=6"};
  ASSERT_EQ(train("whole", warmup).status, 0);
  expect_stop(start("run", "3", warmup),
              "after 3 of 13 steps, as asked (run.stop_after: 3)");
  EXPECT_EQ(newest("run").filename(), "step_00000003");
  EXPECT_TRUE(metrics("run").validations.empty()) << "no validation is forced";
  expect_stop(
      start("run", "20 samples", warmup),  // of six a step
      "at step 7 of 13, 4 steps further on, as asked (run.stop_after: 20 samples)");
  EXPECT_EQ(newest("run").filename(), "step_00000007");
  expect_stop(start("run", "33 tokens", warmup),  // three samples of 16
              "at step 8 of 13, 1 step further on, as asked (run.stop_after: 33 tokens)");
  EXPECT_EQ(stops_recorded("run"), 3);
  // The last start may do as much as is left, or more: that is the run's end.
  const RunResult rest = start("run", "5", warmup);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out, ::testing::Not(HasSubstr("as asked")));
  EXPECT_THAT(rest.out, HasSubstr("run.stop_after: 33 tokens -> 5"));
  EXPECT_EQ(stops_recorded("run"), 3);
  EXPECT_THAT(start("run", "5", warmup).out, HasSubstr("nothing to train"));
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

// One step at a time is no idling, whatever run.max_idle_starts says.
TEST_F(StopAfter, OneStepAtATime) {
  const Arguments few = {"--set", "run.steps=5",       "--set", "run.max_idle_starts=1",
                         "--set", "run.sample_every=0"};
  ASSERT_EQ(train("whole", few).status, 0);
  for (int step = 1; step < 5; ++step) {
    EXPECT_EQ(start("run", "1", few).status, 0);
    EXPECT_EQ(metrics("run").steps.size(), static_cast<std::size_t>(step));
  }
  EXPECT_EQ(start("run", "never", few).status, 0);
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 5);
}

TEST_F(StopAfter, OnSeveralRanks) {
  int number = 0;
  for (const char* layout : {"parallel.pipeline=2", "parallel.zero=3"}) {
    const Arguments more = {"--set", layout,          "--set", "run.sample_every=0",
                            "--set", "batch.micro=1", "--set", "run.steps=7"};
    const std::string whole = "whole" + std::to_string(number);
    const std::string parts = "parts" + std::to_string(number++);
    ASSERT_EQ(start(whole, "never", more, 2).status, 0) << layout;
    expect_stop(start(parts, "4", more, 2),
                "after 4 of 7 steps, as asked (run.stop_after: 4)");
    ASSERT_EQ(start(parts, "never", more, 2).status, 0) << layout;
    expect_same_checkpoint(newest(whole), newest(parts));
    expect_same_metrics(whole, parts, 7);
  }
}

}  // namespace
}  // namespace trireme::test

// Stopped in the middle: by a signal or the time limit (checkpoint, status 75), or
// killed; the restart ends where the uninterrupted run does, bit by bit.
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
                                     " of 600 is saved; continue with --resume auto"));
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

}  // namespace
}  // namespace trireme::test

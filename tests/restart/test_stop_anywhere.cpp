// A signal while the deck is read, and in the middle of a long validation: what there is
// is published at once, and the restart ends as if nothing had been.
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::HasSubstr;

class StopAnywhere : public TrainingRuns {
 protected:
  RunResult in_shell(const std::string& script, const Arguments& arguments) const {
    Arguments command = {"sh", "-c", script, "sh", std::getenv("TRIREME_BINARY")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command, options(1));
  }
  // The deck comes through a pipe: who has it open reads it, and the signal comes before
  // the text.
  RunResult start_and_signal_at_the_deck(const std::string& resume) const {
    return in_shell(
        "rm -f pipe.yaml; mkfifo pipe.yaml; \"$@\" & child=$!\n"
        "{ kill -TERM $child; cat deck.yaml; } > pipe.yaml\n"
        "wait $child",
        {"train", "pipe.yaml", "--run-dir", "run", "--resume", resume});
  }
};

TEST_F(StopAnywhere, WhileTheDeckIsRead) {
  ASSERT_EQ(train("whole").status, 0);
  // Of a new run the first weights are published.
  const RunResult fresh = start_and_signal_at_the_deck("auto");
  ASSERT_EQ(fresh.status, 75) << fresh.err;
  EXPECT_THAT(fresh.out, HasSubstr("stopped early: signal TERM. Step 0 of 13 is saved"));
  EXPECT_EQ(newest("run").filename(), "step_00000000");

  // Of one that has a checkpoint nothing more.
  ASSERT_EQ(train("run", {"--resume", "auto", "--set", "run.time_limit=60s", "--set",
                          "checkpoint.wall_time_margin=60s"})
                .status,
            75);
  EXPECT_EQ(newest("run").filename(), "step_00000001");
  const auto written = std::filesystem::last_write_time(newest("run"));
  const RunResult again = start_and_signal_at_the_deck("auto");
  ASSERT_EQ(again.status, 75) << again.err;
  EXPECT_THAT(again.out, HasSubstr("stopped before the first step: signal TERM. Step 1"));
  EXPECT_EQ(std::filesystem::last_write_time(newest("run")), written);

  // Two starts without a step, and one of a short step.
  const RunResult rest =
      train("run", {"--resume", "auto", "--set", "run.max_idle_starts=0"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
}

// From another run's checkpoint: that is not this run's own.
TEST_F(StopAnywhere, BeforeABranchHasItsOwnCheckpoint) {
  ASSERT_EQ(train("whole").status, 0);
  const RunResult branch =
      start_and_signal_at_the_deck("whole/checkpoints/step_00000010");
  ASSERT_EQ(branch.status, 75) << branch.err;
  EXPECT_THAT(branch.out, HasSubstr("Step 10 of 13 is saved"));
  EXPECT_EQ(newest("run").filename(), "step_00000010");
  const RunResult rest = train("run", {"--resume", "auto"});
  ASSERT_EQ(rest.status, 0) << rest.err;
  expect_same_checkpoint(newest("whole"), newest("run"));
}

TEST_F(StopAnywhere, InALongValidation) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += io::read_file(fixture("sample.txt"));
  make_corpus(scratch_, "long.h5", {text}, trained_tokenizer());
  std::string deck = slurp(scratch_ / "deck.yaml");
  const std::string split = "split: [0.8, 0.2, 0.0]";
  deck.replace(deck.find(split), split.size(), "validation: {long: long.h5}");
  spill(scratch_ / "deck.yaml", deck);
  const RunResult stopped = in_shell(
      "\"$@\" & child=$!\n"
      "while kill -0 $child && ! grep -q '\"step\": 2,' run/train.jsonl; do sleep 0.01; "
      "done 2>/dev/null\n"
      "sleep 0.1; kill -TERM $child; wait $child",
      {"train", "deck.yaml", "--run-dir", "run", "--set", "run.validate_samples=0",
       "--set", "run.validate_every=2"});
  ASSERT_EQ(stopped.status, 75) << stopped.err;
  EXPECT_THAT(stopped.err,
              HasSubstr("step 2: the validation was left early: signal TERM"));
  EXPECT_THAT(stopped.out, HasSubstr("Step 2 of 13 is saved"));
  EXPECT_TRUE(metrics("run").validations.empty());
  EXPECT_EQ(newest("run").filename(), "step_00000002");
}

}  // namespace
}  // namespace trireme::test

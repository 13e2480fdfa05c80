// Disks that fill up, fail, or lose what was written: training goes on, says what
// happened, ends with the right status, and a restart takes the newest checkpoint that is
// whole.
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class FaultsOfDisks : public TrainingRuns {
 protected:
  RunResult start(const std::string& run, const std::string& faults = "",
                  const Arguments& keys = {}) const {
    Arguments arguments = {"train",    "deck.yaml",    "--run-dir", run,
                           "--resume", "auto",         "--set",     "run.sample_every=0",
                           "--set",    "batch.micro=1"};
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    if (!faults.empty()) arguments.insert(arguments.end(), {"--fault", faults});
    return trireme_on_ranks(2, arguments, options(1));
  }
};

// The save of step 5 fails in each phase that writes; those of 10 and 13 do not.
TEST_F(FaultsOfDisks, AreReportedAndTriedAgain) {
  ASSERT_EQ(start("whole").status, 0);
  for (const char* plan :
       {"enospc:phase=ckpt.write,rank=1,step=5", "eio:phase=ckpt.write,step=5",
        "enospc:phase=ckpt.layout,rank=0,step=5", "eio:phase=ckpt.flush,rank=1,step=5",
        "eio:phase=ckpt.index,step=5", "enospc:phase=ckpt.manifest,step=5",
        "eio:phase=ckpt.rename,step=5", "enospc:phase=ckpt.begin,step=5"}) {
    SCOPED_TRACE(plan);
    std::filesystem::remove_all(scratch_ / "run");
    const RunResult result = start("run", plan);
    EXPECT_EQ(result.status, 0) << result.err;
    const bool is_full = std::string(plan).starts_with("enospc");
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the checkpoint of step 5 could not be written"),
                      HasSubstr(is_full ? "No space left on device" : "put/output error"),
                      HasSubstr("Training goes on"), Not(HasSubstr("HDF5-DIAG"))));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "run/checkpoints/step_00000005"));
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
}

TEST_F(FaultsOfDisks, EndARunOnlyAfterSeveral) {
  const Arguments often = {"checkpoint.every=2"};
  const RunResult third = start("three", "enospc:phase=ckpt.write,times=0", often);
  EXPECT_EQ(third.status, 1);
  EXPECT_THAT(third.err, AllOf(HasSubstr("this was the 3. in a row"),
                               HasSubstr("None is published yet")));
  // Not even the last: no success.
  const RunResult last = start("last", "enospc:phase=ckpt.write,times=0",
                               {"checkpoint.every=0", "checkpoint.max_misses=0"});
  EXPECT_EQ(last.status, 1);
  EXPECT_THAT(last.err,
              HasSubstr("the last checkpoint, of step 13, could not be written"));
  // The last is worth some tries.
  const RunResult patient =
      start("patient", "enospc:phase=ckpt.write,times=2", {"checkpoint.every=0"});
  EXPECT_EQ(patient.status, 0) << patient.err;
  EXPECT_EQ(newest("patient").filename(), "step_00000013");
}

// What no system call tells: found when it is read, and left for the one before.
TEST_F(FaultsOfDisks, ThatNothingTellsAreFoundAtARestart) {
  ASSERT_EQ(start("whole").status, 0);
  for (const char* plan : {"bit_flip:phase=ckpt.write,rank=1,step=10",
                           "short_write:phase=ckpt.write,step=10",
                           "bit_flip:phase=ckpt.write,after=3,step=10"}) {
    SCOPED_TRACE(plan);
    std::filesystem::remove_all(scratch_ / "run");
    const Arguments few = {"run.steps=10"};
    ASSERT_EQ(start("run", plan, few).status, 0);
    ASSERT_EQ(newest("run").filename(), "step_00000005");
    const RunResult rest = start("run");
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_THAT(rest.err,
                AllOf(HasSubstr("step_00000010/shard_"), HasSubstr("expected XXH3"),
                      HasSubstr("Going on from an older one"), HasSubstr("of '")));
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", 13);
  }
}

// A finished run whose last checkpoint is damaged is not finished.
TEST_F(FaultsOfDisks, AtTheEndAreFoundToo) {
  ASSERT_EQ(start("run", "bit_flip:phase=ckpt.write,step=13").status, 0);
  const RunResult again = start("run");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("Going on from an older one"));
  EXPECT_EQ(newest("run").filename(), "step_00000013");
  EXPECT_THAT(start("run").out, HasSubstr("nothing to train"));
}

TEST_F(FaultsOfDisks, LostShardIsNamed) {
  ASSERT_EQ(start("run", "", {"run.steps=10"}).status, 0);
  std::filesystem::remove(scratch_ / "run/checkpoints/step_00000010/shard_00001.h5");
  const RunResult rest = start("run");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out + rest.err, HasSubstr("step_00000010/shard_00001.h5"));
}

TEST_F(FaultsOfDisks, WrongPlansAreRefused) {
  for (const auto& [plan, part] : std::vector<std::pair<const char*, const char*>>{
           {"burn:phase=step", "there is no kind 'burn'"},
           {"kill:phase=ckpt.burn", "there is no phase 'ckpt.burn'"},
           {"enospc:phase=step", "there is no phase 'step' for enospc"},
           {"kill:rank=2,phase=step", "rank 2 of a run of 2"},
           {"kill:phase=step,when=2", "there is no key 'when'"},
           {"kill", "either a phase or a time"},
           {"slow:at=3", "only kill and stop"},
           {"kill:phase=step,after=1.5", "not a whole number"},
           {"kill:phase=step,after=x", "neither a number nor a range"}}) {
    const RunResult result = start("run", plan);
    EXPECT_EQ(result.status, 2) << plan;
    EXPECT_THAT(result.err, HasSubstr(part)) << plan;
  }
}

// What never saves is not started for ever.
TEST_F(FaultsOfDisks, IdleStartsAreRefusedOnce) {
  const std::string plan = "kill:phase=step,step=3";
  for (int i = 0; i < 3; ++i) EXPECT_NE(start("run", plan).status, 0);
  const RunResult refused = start("run");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err,
              HasSubstr("the last 3 starts of 'run' have saved no new step"));
  const RunResult next = start("run");
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_THAT(next.out, HasSubstr("effective training time:"));
}

}  // namespace
}  // namespace trireme::test

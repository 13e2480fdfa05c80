// The project's own job scripts in a real SLURM (cluster.sh): stopped by SLURM's warning
// and requeued, cancelled, in a chain, in an array, and as `trireme jobscript` writes
// them. The end is that of a run that nobody interrupted, bit by bit.
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Jobs : public TrainingRuns {
 protected:
  static constexpr int kSteps = 400;

  static void SetUpTestSuite() {
    cluster_ = std::make_unique<Scratch>();
    started_ = run({script("tests/slurm/cluster.sh"), "start", cluster_->path().string()},
                   {.timeout = 60.0});
  }
  static void TearDownTestSuite() {
    run({script("tests/slurm/cluster.sh"), "stop", cluster_->path().string()});
    cluster_.reset();
  }
  void SetUp() override {
    ASSERT_EQ(started_.status, 0) << started_.out << started_.err;
    write_job_deck("long.yaml", kSteps, "every: 150");
    spill(scratch_ / "machine.sh",
          "#SBATCH --ntasks-per-node=2\n"
          "export OMP_NUM_THREADS=1\n"
          "launcher=(srun --kill-on-bad-exit=1)\n");  // the scripts know which --mpi
  }

  static std::string script(const std::string& name) {
    const char* source = std::getenv("TRIREME_SOURCE_DIR");
    return (io::Path(source != nullptr ? source : ".") / name).string();
  }
  // For two ranks; `checkpoint` in place of that section's first key.
  void write_job_deck(const std::string& name, int steps, const std::string& checkpoint) {
    write_deck(name, steps);
    std::string text = slurp(scratch_ / name);
    const auto replace = [&](const std::string& old, const std::string& by) {
      text.replace(text.find(old), old.size(), by);
    };
    replace("micro: 2", "micro: 1");
    replace("every: 5,", checkpoint + ",");
    spill(scratch_ / name, text);
  }
  // What a run is told besides; the same in a job as without.
  static Arguments options_of(const std::string& run) {
    return {"--run-dir",         run, "--set", "run.validate_every=0", "--set",
            "run.sample_every=0"};
  }
  // All at once, on as many ranks.
  void run_whole() const {
    Arguments arguments = {"train", "long.yaml"};
    const Arguments more = options_of("whole");
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(2, arguments, options(1));
    ASSERT_EQ(result.status, 0) << result.err;
  }

  // A program with the cluster's and the scripts' variables, in the scratch directory.
  RunResult command(const Arguments& words) const {
    RunOptions in = options(1);
    const std::string conf = started_.out.substr(started_.out.find('=') + 1);
    in.environment["SLURM_CONF"] = conf.substr(0, conf.find('\n'));
    in.environment["TRIREME"] = std::getenv("TRIREME_BINARY");
    in.environment["TRIREME_HOME"] = script(".");
    in.environment["TRIREME_MACHINE"] = (scratch_ / "machine.sh").string();
    return run(words, in);
  }
  // Its number; what it prints goes to <number>.log.
  std::string submit(const Arguments& options, const Arguments& script_and_arguments) {
    Arguments words = {"sbatch", "--parsable", "--ntasks=2", "--output=%j.log"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), script_and_arguments.begin(), script_and_arguments.end());
    const RunResult result = command(words);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out.substr(0, result.out.find('\n'));
  }
  // With a fault plan: how fast the machine is must not decide what a test meets.
  std::string submit_training(const std::string& run, const Arguments& options,
                              const std::string& fault = "") {
    Arguments words = {script("slurm/train.sbatch"), "long.yaml"};
    Arguments more = options_of(run);
    if (!fault.empty()) more.insert(more.end(), {"--fault", fault});
    words.insert(words.end(), more.begin(), more.end());
    return submit(options, words);
  }
  std::string state_of(const std::string& job) const {
    const std::string text = command({"scontrol", "show", "job", "-o", job}).out;
    const std::size_t at = text.find("JobState=");
    return at == std::string::npos ? "(none)"
                                   : text.substr(at + 9, text.find(' ', at) - at - 9);
  }
  std::string log_of(const std::string& job) const {
    return slurp(scratch_ / (job + ".log"));
  }
  int steps_of(const std::string& run) const {
    const std::string text = slurp(scratch_ / run / "train.jsonl");
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  static bool wait_until(
      const std::function<bool()>& holds, double seconds,
      std::chrono::milliseconds pause = std::chrono::milliseconds(20)) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end) {
      if (holds()) return true;
      std::this_thread::sleep_for(pause);
    }
    return holds();
  }
  // Each look is a process, which takes the core from the job.
  std::string end_of(const std::string& job) const {
    std::string state;
    wait_until(
        [&] {
          state = state_of(job);
          return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED" ||
                 state == "TIMEOUT" || state == "NODE_FAIL";
        },
        150.0, std::chrono::milliseconds(300));
    return state;
  }

 private:
  static std::unique_ptr<Scratch> cluster_;
  static RunResult started_;
};
std::unique_ptr<Scratch> Jobs::cluster_;
RunResult Jobs::started_;

TEST_F(Jobs, GoOnAfterTheWarning) {
  run_whole();
  // Ranks that stand still until SLURM's warning comes (half a minute): it finds them in
  // the middle of the run.
  const std::string job = submit_training("run", {"--time=1", "--signal=B:USR1@10"},
                                          "stop:phase=step,step=20");
  const auto is_warned = [&] {
    return log_of(job).find("got USR1") != std::string::npos;
  };
  ASSERT_TRUE(wait_until([&] { return steps_of("run") >= 19; }, 60.0)) << log_of(job);
  // SLURM looks for jobs to warn every half minute, and was seen to miss one: then the
  // same signal comes in the same way from us, before the limit does.
  if (!wait_until(is_warned, 50.0)) {
    std::printf("SLURM did not warn the job within 50 s: the test does\n");
    ASSERT_EQ(command({"scancel", "--batch", "--signal=USR1", job}).status, 0);
  }
  ASSERT_TRUE(wait_until(is_warned, 30.0)) << log_of(job);
  ASSERT_EQ(command({"scancel", "--signal=CONT", job}).status, 0);

  ASSERT_EQ(end_of(job), "COMPLETED") << log_of(job);
  EXPECT_THAT(log_of(job),
              AllOf(HasSubstr("start 1, on "), HasSubstr("stopped early: signal USR1"),
                    HasSubstr("back into the queue"), HasSubstr("start 2, on "),
                    HasSubstr(": done\n")));
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", kSteps);
}

TEST_F(Jobs, ThatAreCancelledLeaveAWholeCheckpoint) {
  run_whole();
  const std::string job =
      submit_training("run", {"--time=10"}, "slow:phase=step,step=30,seconds=7");
  ASSERT_TRUE(wait_until([&] { return steps_of("run") >= 29; }, 60.0)) << log_of(job);
  // As at the end of the grace time of a preemption: TERM again, and passed on, too.
  ASSERT_EQ(command({"scancel", "--signal=TERM", job}).status, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  ASSERT_EQ(command({"scancel", job}).status, 0);
  ASSERT_EQ(end_of(job), "CANCELLED");
  ASSERT_TRUE(wait_until(
      [&] { return log_of(job).find("SLURM ends this job") != std::string::npos; }, 60.0))
      << log_of(job);
  EXPECT_THAT(log_of(job), AllOf(HasSubstr("stopped early: signal TERM"),
                                 HasSubstr("(the ranks: status 75)")));
  EXPECT_THAT(log_of(job), Not(HasSubstr("back into the queue")));
  const RunResult whole = trireme({"inspect", "--verify", "run"}, options(1));
  EXPECT_EQ(whole.status, 0) << whole.err;
  const std::int64_t step = ckpt::CheckpointReader(newest("run")).state().step;
  EXPECT_GE(step, 29);
  EXPECT_LT(step, kSteps);

  const std::string next = submit_training("run", {"--time=10"});
  ASSERT_EQ(end_of(next), "COMPLETED") << log_of(next);
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", kSteps);
}

// The first stops by itself, by what squeue says of its two minutes, as it is slow in the
// middle of the run; one of the next comes to the end, and takes the others out of the
// queue.
TEST_F(Jobs, OfAChainGoOnInTurn) {
  write_job_deck("long.yaml", kSteps, "every: 150, wall_time_margin: 118s");
  Arguments words = {script("slurm/chain.sh"),
                     "5",
                     "--ntasks=2",
                     "--output=%j.log",
                     "--time=2",
                     "--signal=B:USR1@10",
                     script("slurm/train.sbatch"),
                     "long.yaml"};
  Arguments more = options_of("run");
  more.insert(more.end(), {"--fault", "slow:phase=step,step=200,seconds=10"});
  words.insert(words.end(), more.begin(), more.end());
  const RunResult submitted = command(words);
  ASSERT_EQ(submitted.status, 0) << submitted.err;
  std::vector<std::string> jobs;
  std::istringstream numbers(submitted.out);
  for (std::string job; numbers >> job;) jobs.push_back(job);
  ASSERT_EQ(jobs.size(), 5u);
  ASSERT_TRUE(wait_until(
      [&] { return log_of(jobs[0]).find("of the chain") != std::string::npos; }, 60.0))
      << log_of(jobs[0]);
  write_job_deck("long.yaml", kSteps, "every: 150");

  EXPECT_EQ(end_of(jobs[0]), "FAILED");  // status 75
  EXPECT_THAT(log_of(jobs[0]),
              ContainsRegex("stopped early: the job's end is near \\(1m[0-9]+s left\\)"));
  int completed = 0;
  for (const std::string& job : jobs) completed += end_of(job) == "COMPLETED" ? 1 : 0;
  EXPECT_EQ(completed, 1);
  EXPECT_EQ(end_of(jobs[4]), "CANCELLED");
  EXPECT_EQ(log_of(jobs[4]), "");
  EXPECT_EQ(ckpt::CheckpointReader(newest("run")).state().step, kSteps);
}

TEST_F(Jobs, OfAnArrayHaveADeckEach) {
  write_job_deck("a.yaml", 4, "every: 5");
  write_job_deck("b.yaml", 5, "every: 5");
  const std::string job = submit({"--array=0-2", "--time=10", "--output=%a.log"},
                                 {script("slurm/train.sbatch"), "a.yaml", "b.yaml"});
  EXPECT_EQ(end_of(job + "_0"), "COMPLETED") << log_of("0");
  EXPECT_EQ(end_of(job + "_1"), "COMPLETED") << log_of("1");
  EXPECT_EQ(ckpt::CheckpointReader(newest("runs/a")).state().step, 4);
  EXPECT_EQ(ckpt::CheckpointReader(newest("runs/b")).state().step, 5);
  EXPECT_EQ(end_of(job + "_2"), "FAILED");
  EXPECT_THAT(log_of("2"), HasSubstr("no deck for task 2 of the array"));
}

TEST_F(Jobs, AsJobscriptWritesThem) {
  write_job_deck("deck.yaml", 13, "every: 5");
  Arguments words = {std::getenv("TRIREME_BINARY"),
                     "jobscript",
                     "deck.yaml",
                     "--machine",
                     "./machine.sh",
                     "--nodes",
                     "1",
                     "--time",
                     "5m",
                     "--out",
                     "job.sbatch"};
  const Arguments more = options_of("run");
  words.insert(words.end(), more.begin(), more.end());
  const RunResult written = command(words);
  ASSERT_EQ(written.status, 0) << written.err;
  const std::string job = submit({}, {"job.sbatch"});
  ASSERT_EQ(end_of(job), "COMPLETED") << log_of(job);
  EXPECT_EQ(ckpt::CheckpointReader(newest("run")).state().step, 13);
  EXPECT_THAT(log_of(job),
              AllOf(ContainsRegex("nodes: [^ ]+\n"),
                    HasSubstr("srun: --mpi=pmi2 where the launcher has none"),
                    HasSubstr("\ntrireme 0."), HasSubstr("modules: ")));
  // An error is no reason to try again.
  spill(scratch_ / "deck.yaml", "model: {layers: 2}\n");
  const std::string broken = submit({}, {"job.sbatch"});
  EXPECT_EQ(end_of(broken), "FAILED");
  EXPECT_THAT(log_of(broken), AllOf(HasSubstr("ended with status 2: not requeued"),
                                    HasSubstr("tail -n 40 " + scratch_.path().string())));
}

// Whatever the deck says of checkpoints: the second run would be refused, or go on with
// the first one's, or another job's.
TEST_F(Jobs, OfASweepMakeATable) {
  write_job_deck("long.yaml", kSteps, "every: 150, dir: elsewhere");
  const std::string job =
      submit({"--nodes=1", "--time=5",
              "--export=ALL,TRIREME_RANKS=1 2,TRIREME_STEPS=8,TRIREME_REPEATS=1"},
             {script("slurm/scaling.sbatch"), "long.yaml"});
  ASSERT_EQ(end_of(job), "COMPLETED") << log_of(job);
  EXPECT_THAT(log_of(job),
              AllOf(HasSubstr("strong scaling: a batch of 6 on every number of ranks"),
                    ContainsRegex(" 1 +[0-9.]+ +[0-9.]+ +1.00 +100.0%  [^ ]+/long-1\n"),
                    ContainsRegex(" 2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+%  [^ ]+-2\n")));
  EXPECT_EQ(metrics("scaling-" + job + "/long-2").steps.back().step, 8);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "elsewhere"));
}

}  // namespace
}  // namespace trireme::test

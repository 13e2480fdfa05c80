// tests/restart/killed_runs.hpp — a run on two ranks that is killed again and again by
// its fault plan, one rank or both, and each time goes on by itself: the checkpoint that
// `latest` names is always whole, its step never goes back, and in the end the run is
// what it would have been. With a file of each rank, or one that both write to.
#ifndef TRIREME_TESTS_RESTART_KILLED_RUNS_HPP_
#define TRIREME_TESTS_RESTART_KILLED_RUNS_HPP_

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ckpt/saver.hpp"
#include "restart/training_runs.hpp"

namespace trireme::test {

class KilledRuns : public TrainingRuns {
 protected:
  KilledRuns() {
    write_deck("deck.yaml", kSteps,
               "");  // a step takes 1 ms; in the runs that are killed 10 ms more
  }

  RunResult start(const std::string& run, const std::string& faults = "") const {
    Arguments arguments = {
        "train",    "deck.yaml", "--run-dir", run,
        "--resume", "auto",      "--set",     "checkpoint.writers=" + writers_};
    for (const char* key :
         {"run.sample_every=0", "run.validate_every=0", "checkpoint.every=4",
          "checkpoint.keep=2", "checkpoint.keep_best=false", "run.max_idle_starts=0",
          "parallel.zero=1", "batch.micro=1", "run.hang_timeout=30s"}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    if (!faults.empty()) arguments.insert(arguments.end(), {"--fault", faults});
    return trireme_on_ranks(2, arguments, options(1));
  }

  // Each phase of a save, on either rank and on both; then so many times at any instant.
  static std::vector<std::string> plans(int at_random) {
    std::vector<std::string> plans;
    for (const FaultPhase& phase : ckpt::save_phases()) {
      const bool is_of_all = phase.name == "ckpt.stage" || phase.name == "ckpt.layout" ||
                             phase.name == "ckpt.write" || phase.name == "ckpt.flush";
      plans.push_back(fmt::format("kill:phase={},rank=0", phase.name));
      if (!is_of_all) continue;
      plans.push_back(fmt::format("kill:phase={},rank=1,after=2", phase.name));
      plans.push_back(fmt::format("kill:phase={}", phase.name));
    }
    add_random(at_random, plans);
    return plans;
  }
  // The phases that go another way where the ranks share a file: rank 0 alone lays it
  // out, each writes and syncs its part, and what is published is one file.
  static std::vector<std::string> plans_of_a_shared_file(int at_random) {
    std::vector<std::string> plans = {"kill:phase=ckpt.layout,rank=0",
                                      "kill:phase=ckpt.layout,rank=0,after=2"};
    for (const char* phase : {"ckpt.write", "ckpt.flush"}) {
      for (const char* ranks : {",rank=0", ",rank=1", ",rank=0,after=2", ""}) {
        plans.push_back(fmt::format("kill:phase={}{}", phase, ranks));
      }
    }
    for (const char* phase : {"ckpt.index", "ckpt.rename", "ckpt.publish"}) {
      plans.push_back(fmt::format("kill:phase={},rank=0", phase));
    }
    add_random(at_random, plans);
    return plans;
  }

  std::int64_t latest_step(const std::string& run) const {
    const io::Path latest = scratch_ / run / "checkpoints/latest";
    if (!std::filesystem::exists(latest)) return -1;
    EXPECT_THAT(ckpt::problems_of(latest, ckpt::Depth::checksums), ::testing::IsEmpty());
    return ckpt::CheckpointReader(latest).state().step;
  }

  // As checkpoint.writers says; two ranks make so many files of it.
  void expect_survives(const std::vector<std::string>& plans, const std::string& writers,
                       std::size_t files) {
    writers_ = writers;
    ASSERT_EQ(start("whole").status, 0);
    ASSERT_EQ(shards_of(newest("whole")), files);
    std::int64_t step = -1;
    int killed = 0;
    for (const std::string& plan : plans) {
      SCOPED_TRACE(plan);
      const RunResult result =
          start("run", plan + ";slow:phase=step,times=0,seconds=0.01");
      // By what it said: some launchers' status of killed ranks is 0 (MPICH 4.2.1).
      if (result.err.find("fault: 'kill") == std::string::npos) {  // done before: anew
        ASSERT_EQ(result.status, 0) << result.err;
        expect_same_checkpoint(newest("whole"), newest("run"));
        std::filesystem::remove_all(scratch_ / "run");
        step = -1;
        continue;
      }
      ++killed;
      const std::int64_t now = latest_step("run");
      EXPECT_GE(now, step);
      step = now;
      for (const ckpt::Listed& listed : checkpoints_of("run")) {
        EXPECT_THAT(ckpt::problems_of(listed.path, ckpt::Depth::checksums),
                    ::testing::IsEmpty());
      }
    }
    const RunResult rest = start("run");
    ASSERT_EQ(rest.status, 0) << rest.err;
    EXPECT_THAT(rest.out + rest.err, ::testing::Not(::testing::HasSubstr("damaged")));
    expect_same_checkpoint(newest("whole"), newest("run"));
    expect_same_metrics("whole", "run", kSteps);
    // Nothing half written is left.
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_ / "run/checkpoints")) {
      EXPECT_EQ(entry.path().filename().string().find(".tmp-"), std::string::npos)
          << entry.path();
    }
    // Some that are killed at an instant were done before it.
    EXPECT_GE(killed, static_cast<int>(plans.size()) * 3 / 4);
  }

  std::vector<ckpt::Listed> checkpoints_of(const std::string& run) const {
    const io::Path directory = scratch_ / run / "checkpoints";
    if (!std::filesystem::exists(directory)) return {};
    return ckpt::list_checkpoints(directory);
  }

  static constexpr int kSteps = 300;

 private:
  static void add_random(int count, std::vector<std::string>& plans) {
    for (int i = 0; i < count; ++i) {
      plans.push_back(fmt::format("kill:at=0.1-1.1,rank=0-1,seed={}", i));
    }
  }

  std::string writers_ = "per_rank";
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_KILLED_RUNS_HPP_

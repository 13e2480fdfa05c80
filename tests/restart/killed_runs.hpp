// tests/restart/killed_runs.hpp — a run on two ranks that is killed again and again by
// its fault plan, one rank or both, and each time goes on by itself: the checkpoint that
// `latest` names is always whole, its step never goes back, and in the end the run is
// what it would have been.
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
    Arguments arguments = {"train", "deck.yaml", "--run-dir", run, "--resume", "auto"};
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
    for (int i = 0; i < at_random; ++i) {
      plans.push_back(fmt::format("kill:at=0.1-1.1,rank=0-1,seed={}", i));
    }
    return plans;
  }

  std::int64_t latest_step(const std::string& run) const {
    const io::Path latest = scratch_ / run / "checkpoints/latest";
    if (!std::filesystem::exists(latest)) return -1;
    EXPECT_THAT(ckpt::problems_of(latest, ckpt::Depth::checksums), ::testing::IsEmpty());
    return ckpt::CheckpointReader(latest).state().step;
  }

  void expect_survives(const std::vector<std::string>& plans) {
    ASSERT_EQ(start("whole").status, 0);
    std::int64_t step = -1;
    int killed = 0;
    for (const std::string& plan : plans) {
      SCOPED_TRACE(plan);
      const RunResult result =
          start("run", plan + ";slow:phase=step,times=0,seconds=0.01");
      if (result.status == 0) {  // it was done before: begin again
        expect_same_checkpoint(newest("whole"), newest("run"));
        std::filesystem::remove_all(scratch_ / "run");
        step = -1;
        continue;
      }
      ASSERT_THAT(result.err, ::testing::HasSubstr("fault: ")) << result.status;
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
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_KILLED_RUNS_HPP_

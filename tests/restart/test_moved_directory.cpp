// A run whose directory is moved, removed or replaced while it trains ends with status 1
// and the reason on the next record or save: nothing is made anew under the old name, and
// what is written there meanwhile is another start's alone.
#include <chrono>
#include <functional>
#include <future>
#include <sstream>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class MovedDirectory : public TrainingRuns {
 protected:
  // A run of two ranks that would take an hour; `change` is called when `file` is there
  // and not empty.
  RunResult disturbed(const Arguments& keys, const io::Path& file,
                      const std::function<void()>& change) const {
    Arguments arguments = {"train", "deck.yaml", "--run-dir",
                           "run",   "--fault",   "slow:phase=step,times=0,seconds=0.03"};
    for (const char* key : {"run.steps=100000", "run.sample_every=0", "batch.micro=1",
                            "run.validate_every=0", "checkpoint.keep=2"}) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    auto result = std::async(std::launch::async,
                             [&] { return trireme_on_ranks(2, arguments, options(1)); });
    constexpr std::chrono::milliseconds kTurn{10};
    std::error_code error;
    while (result.wait_for(kTurn) == std::future_status::timeout) {
      if (!fs::is_directory(file, error) && fs::file_size(file, error) + 1 < 2) continue;
      change();
      break;
    }
    return result.get();
  }
  static Arguments records() { return {"run.log_every=1", "checkpoint.every=0"}; }
  static Arguments saves() { return {"run.log_every=100000", "checkpoint.every=3"}; }

  io::Path run() const { return scratch_ / "run"; }
  io::Path log() const { return run() / "train.jsonl"; }
  io::Path saved() const { return run() / "checkpoints/step_00000003"; }
};

TEST_F(MovedDirectory, EndAtTheNextRecord) {
  const io::Path moved = scratch_ / "moved";
  const RunResult result = disturbed(records(), log(), [&] { fs::rename(run(), moved); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("'run' was moved to '" + moved.string()),
                                HasSubstr("when it has ended")));
  EXPECT_FALSE(fs::exists(run()));
  EXPECT_THAT(slurp(moved / "starts.jsonl"), HasSubstr("\"event\":\"ended\""));
}

TEST_F(MovedDirectory, EndAtTheNextSave) {
  const RunResult result =
      disturbed(saves(), saved(), [&] { fs::rename(run(), scratch_ / "moved"); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("'run' was moved to"));
  EXPECT_FALSE(fs::exists(run()));
  // It goes on from where it is now.
  const RunResult rest =
      train("moved", {"--resume", "auto", "--set", "run.stop_after=2"});
  EXPECT_EQ(rest.status, 0) << rest.err;
}

// Whether it is seen between the two calls is chance; unit.io.held_directory has the
// words of each.
TEST_F(MovedDirectory, RemovedOnesAreNotMadeAnew) {
  const auto remove_run = [&] {
    fs::rename(run(), scratch_ / "gone");  // at once: files are removed one by one
    fs::remove_all(scratch_ / "gone");
  };
  const auto says_so =
      AnyOf(HasSubstr("'run' was removed"), HasSubstr("'run' was moved to"));
  const RunResult at_record = disturbed(records(), log(), remove_run);
  EXPECT_EQ(at_record.status, 1);
  EXPECT_THAT(at_record.err, says_so);
  EXPECT_FALSE(fs::exists(run()));
  const RunResult at_save = disturbed(saves(), saved(), remove_run);
  EXPECT_EQ(at_save.status, 1);
  EXPECT_THAT(at_save.err, says_so);
  EXPECT_FALSE(fs::exists(run()));
}

// The second start trains in a directory of its own, whole.
TEST_F(MovedDirectory, AnotherStartUnderTheOldNameIsLeftAlone) {
  RunResult second;
  Arguments keys = records();
  keys[1] = "checkpoint.every=2";
  const RunResult first = disturbed(keys, log(), [&] {
    fs::rename(run(), scratch_ / "moved");
    second = train("run", {"--resume", "auto"});
  });
  EXPECT_EQ(first.status, 1);
  EXPECT_THAT(first.err, HasSubstr("'run' was moved to"));
  EXPECT_EQ(second.status, 0) << second.err;
  ASSERT_EQ(train("whole").status, 0);
  expect_same_checkpoint(newest("whole"), newest("run"));
  expect_same_metrics("whole", "run", 13);
  std::istringstream starts(slurp(run() / "starts.jsonl"));
  for (std::string line; std::getline(starts, line);) {
    EXPECT_THAT(line, HasSubstr("\"start\":1,"));
  }
}

TEST_F(MovedDirectory, CheckpointsElsewhereAreHeldToo) {
  Arguments keys = saves();
  keys.push_back("checkpoint.dir=elsewhere/checkpoints");
  const io::Path elsewhere = scratch_ / "elsewhere";
  const RunResult result = disturbed(keys, elsewhere / "checkpoints/step_00000003",
                                     [&] { fs::rename(elsewhere, scratch_ / "gone"); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("'elsewhere/checkpoints' was moved to"));
  EXPECT_FALSE(fs::exists(elsewhere));
}

TEST_F(MovedDirectory, ALockThatIsRemovedKeepsNobodyOut) {
  const RunResult result =
      disturbed(records(), log(), [&] { fs::remove(run() / ".lock"); });
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("'run/.lock' was removed"));
}

}  // namespace
}  // namespace trireme::test

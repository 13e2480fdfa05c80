// Two starts in one run directory: the second decides what to do when it holds the lock,
// so that what the first did meanwhile counts.
#include <chrono>
#include <cstdlib>
#include <future>
#include <stdexcept>
#include <thread>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TwoStarts : public TrainingRuns {
 protected:
  // One that waits before it takes its lock, until open().
  class Waiting {
   public:
    Waiting(const TwoStarts& test, const std::string& run, const Arguments& more)
        : gate_(test.scratch_ / ("gate" + std::to_string(++gates_))) {
      RunOptions options = test.options(1);
      options.environment["LD_PRELOAD"] = library();
      options.environment["TRIREME_TEST_LOCK_GATE"] = gate_.string();
      Arguments arguments = {"train", "deck.yaml", "--run-dir", run};
      arguments.insert(arguments.end(), more.begin(), more.end());
      result_ =
          std::async(std::launch::async, [=] { return trireme(arguments, options); });
      const io::Path reached = gate_.string() + ".reached";
      constexpr std::chrono::milliseconds kTurn{10};
      while (!std::filesystem::exists(reached) &&
             result_.wait_for(kTurn) == std::future_status::timeout) {
      }
      EXPECT_TRUE(std::filesystem::exists(reached)) << "it has taken no lock";
    }
    ~Waiting() {
      if (result_.valid()) end();
    }
    RunResult end() {
      spill(gate_, "");
      return result_.get();
    }

   private:
    static std::string library() {
      const char* name = std::getenv("TRIREME_DELAY_LOCK_LIBRARY");
      if (name == nullptr) {
        throw std::runtime_error("TRIREME_DELAY_LOCK_LIBRARY is not set");
      }
      return name;
    }
    static inline int gates_ = 0;
    io::Path gate_;
    std::future<RunResult> result_;
  };

  std::string state_of(const std::string& run) const {
    return slurp(scratch_ / run / "train.jsonl") + slurp(scratch_ / run / "starts.jsonl");
  }
};

TEST_F(TwoStarts, InANewDirectoryTheSecondIsRefused) {
  Waiting second(*this, "run", {});
  ASSERT_EQ(train("run").status, 0);
  const std::string before = state_of("run");
  const RunResult result = second.end();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("holds a run already"), HasSubstr("--resume auto")));
  EXPECT_EQ(state_of("run"), before);
  EXPECT_EQ(newest("run").filename(), "step_00000013");
}

TEST_F(TwoStarts, TheSecondGoesOnFromWhatTheFirstHasSaved) {
  const Arguments keys = {"--resume",          "auto",  "--set",
                          "checkpoint.keep=1", "--set", "checkpoint.keep_best=false"};
  const auto with_steps = [&](const char* steps) {
    Arguments all = keys;
    all.insert(all.end(), {"--set", steps});
    return all;
  };
  ASSERT_EQ(train("run", with_steps("run.steps=5")).status, 0);
  // What was the newest when they came is purged when they begin.
  Waiting done(*this, "run", keys), further(*this, "run", with_steps("run.steps=15"));
  ASSERT_EQ(train("run", keys).status, 0);
  const std::string before = state_of("run");
  const RunResult nothing = done.end();
  EXPECT_EQ(nothing.status, 0) << nothing.err;
  EXPECT_THAT(nothing.out, HasSubstr("nothing to train"));
  EXPECT_EQ(state_of("run"), before);
  const RunResult rest = further.end();
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.out, HasSubstr("13 done before"));
  EXPECT_THAT(rest.err, Not(HasSubstr("damaged")));
  EXPECT_EQ(metrics("run").steps.size(), 15u);
}

// The first one made the directory, and removes it as it is refused: a lock in what is
// gone is none.
TEST_F(TwoStarts, ADirectoryThatIsRemovedMeanwhileIsMadeAnew) {
  Waiting refused(*this, "run", {"--init-from", "nowhere"});
  Waiting second(*this, "run", {});
  const RunResult result = refused.end();
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "run"));
  const RunResult trained = second.end();
  EXPECT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(newest("run").filename(), "step_00000013");
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "run/.lock"));
}

}  // namespace
}  // namespace trireme::test

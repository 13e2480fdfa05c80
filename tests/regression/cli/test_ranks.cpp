// Several ranks of the program, one of which dies, hangs or is another program: all are
// down soon, the status is not 0, and who it was is said.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <thread>

#include "comm/operation_board.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Ranks : public Workplace {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr int kRanks = 3;

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }
  template <class Condition>
  static bool comes_true(double seconds, const Condition& condition) {
    const auto start = Clock::now();
    while (!condition() && seconds_since(start) < seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return condition();
  }
  // There, and no zombie that nobody has fetched.
  static bool runs(int process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string line;
    if (!std::getline(file, line)) return false;
    const std::size_t name_end = line.rfind(") ");
    return name_end == std::string::npos || line.substr(name_end + 2, 1) != "Z";
  }

  static bool all_go(const std::vector<comm::RankState>& states) {
    return comes_true(5.0, [&] {
      return std::none_of(states.begin(), states.end(),
                          [](const auto& state) { return runs(state.process); });
    });
  }

  // A run without end on some ranks, of which one gets a signal in the middle of
  // training.
  struct Ended {
    RunResult result;
    comm::RankState victim;
    double seconds = 0.0;  // from the signal to the end
  };
  Ended signalled(int victim, int signal, const std::vector<std::string>& overrides) {
    std::vector<std::string> all = {"run.steps=100000000", "checkpoint.every=0",
                                    fmt::format("batch.global={}", 2 * kRanks)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    auto run = std::async(std::launch::async, [arguments = train_arguments(all)] {
      return trireme_on_ranks(kRanks, arguments);
    });
    std::vector<comm::RankState> states;
    const bool trains = comes_true(60.0, [&] {
      states = comm::read_boards(run_dir()).ranks;
      std::error_code ignored;
      const auto log = run_dir() / "train.jsonl";
      return states.size() == kRanks && fs::exists(log) &&
             fs::file_size(log, ignored) > 1000;
    });
    EXPECT_TRUE(trains);
    if (!trains) return {run.get(), {}, 0.0};
    Ended ended;
    ended.victim = states[static_cast<std::size_t>(victim)];
    const auto start = Clock::now();
    ::kill(ended.victim.process, signal);
    ended.result = run.get();
    ended.seconds = seconds_since(start);
    EXPECT_TRUE(all_go(states));
    return ended;
  }
  static std::string name_of(const comm::RankState& state) {
    return fmt::format("rank {} (process {} on {})", state.rank, state.process,
                       state.host);
  }
};

TEST_F(Ranks, KilledRankIsNamedByTheNextStart) {
  const Ended killed = signalled(1, SIGKILL, {});
  EXPECT_NE(killed.result.status, 0);
  EXPECT_NE(killed.result.status, -1) << "not down";
  EXPECT_LT(killed.seconds, 10.0);

  const auto again = [&] {
    return trireme_on_ranks(kRanks,
                            train_arguments({fmt::format("batch.global={}", 2 * kRanks)},
                                            {"--resume", "auto"}));
  };
  const RunResult next = again();
  ASSERT_EQ(next.status, 0) << next.err;
  EXPECT_THAT(next.out, AllOf(HasSubstr("the start before did not end cleanly: 3 of 3"),
                              HasSubstr(name_of(killed.victim) + ": ")));
  // That one did.
  const RunResult last = again();
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.out, Not(HasSubstr("cleanly")));
}

TEST_F(Ranks, WhoHangsIsShown) {
  const Ended stopped = signalled(2, SIGSTOP, {"run.hang_timeout=2s"});
  EXPECT_NE(stopped.result.status, 0);
  EXPECT_NE(stopped.result.status, -1) << "not down";
  EXPECT_LT(stopped.seconds, 2.0 + 10.0);
  const std::string& text = stopped.result.err;
  EXPECT_THAT(
      text, AllOf(HasSubstr("run.hang_timeout: rank "), HasSubstr("What each rank does"),
                  HasSubstr("rank 0 (process"), HasSubstr("rank 1 (process"),
                  HasSubstr("of group "), HasSubstr(name_of(stopped.victim) + ": "),
                  HasSubstr("the process is stopped")));
  EXPECT_EQ(text.find("What each rank does"), text.rfind("What each rank does"));
  EXPECT_THAT(slurp(run_dir() / comm::kHangName), HasSubstr(name_of(stopped.victim)));
}

// A damaged token: only the rank that draws its sample meets it. The others wait for its
// gradients by then.
TEST_F(Ranks, ErrorOfOneRankTakesAllDown) {
  std::string content = slurp(corpus());
  const std::size_t middle = content.size() / 4 * 2;
  content[middle] = content[middle + 1] = '\xff';
  const fs::path damaged = scratch_ / "damaged.h5";
  spill(damaged, content);
  const RunResult result = trireme_on_ranks(
      kRanks,
      train_arguments({"data.train=" + damaged.string(), "run.steps=100000000",
                       "data.seed=3", "checkpoint.every=0", "run.validate_every=0",
                       fmt::format("batch.global={}", 2 * kRanks)}));
  const auto last_record =
      fs::file_time_type::clock::now() - fs::last_write_time(run_dir() / "train.jsonl");
  EXPECT_LT(std::chrono::duration<double>(last_record).count(), 10.0);
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err,
              testing::ContainsRegex("trireme: rank [0-2] of 3 on [^ ]+: corpus '.*"
                                     "damaged.h5': token id 65535 near token [0-9]+"));
  EXPECT_EQ(result.err.find("trireme: "), result.err.rfind("trireme: "));
  const std::vector<comm::RankState> states = comm::read_boards(run_dir()).ranks;
  EXPECT_EQ(states.size(), static_cast<std::size_t>(kRanks));
  EXPECT_TRUE(all_go(states));
}

TEST_F(Ranks, OfDifferentProgramsAreRefused) {
  const fs::path binary = std::getenv("TRIREME_BINARY");
  const fs::path other = scratch_ / "trireme";
  fs::copy_file(binary, other);
  std::ofstream(other, std::ios::app | std::ios::binary) << "another build";
  const char* launcher = std::getenv("TRIREME_MPIEXEC");
  const auto arguments = train_arguments({"batch.global=6"});
  std::vector<std::string> command = {launcher != nullptr ? launcher : "mpiexec"};
  for (const auto& [ranks, program] : {std::pair("2", binary), std::pair("1", other)}) {
    if (program == other) command.push_back(":");
    command.insert(command.end(), {"-n", ranks, program.string()});
    command.insert(command.end(), arguments.begin(), arguments.end());
  }
  const RunResult result = run(command, {.environment = {{"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the ranks run different programs: ranks 0-1 (on "),
                    HasSubstr("; rank 2 (on "), HasSubstr("checksum")));
  EXPECT_FALSE(fs::exists(run_dir()));
}

}  // namespace
}  // namespace trireme::test

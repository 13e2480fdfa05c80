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
  // Longer than ranks that share cores keep each other from giving signs of life.
  static constexpr std::chrono::milliseconds kSilence{1000};

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

  // A run without end on some ranks, and what is done to them in the middle of training.
  struct Ended {
    RunResult result;
    comm::RankState victim;
    double seconds = 0.0;  // from the beginning of that to the end
  };
  using States = std::vector<comm::RankState>;
  Ended while_training(const std::vector<std::string>& overrides,
                       const std::function<void(const States&)>& act,
                       const RunOptions& options = {}) {
    std::vector<std::string> all = {"run.steps=100000000", "checkpoint.every=0",
                                    fmt::format("batch.global={}", 2 * kRanks)};
    all.insert(all.end(), overrides.begin(), overrides.end());
    auto run = std::async(std::launch::async, [&, arguments = train_arguments(all)] {
      return trireme_on_ranks(kRanks, arguments, options);
    });
    States states;
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
    const auto start = Clock::now();
    act(states);
    ended.result = run.get();
    ended.seconds = seconds_since(start);
    EXPECT_TRUE(all_go(states));
    return ended;
  }
  // One of them gets signals.
  Ended signalled(int victim, const std::vector<int>& signals,
                  const std::vector<std::string>& overrides,
                  std::chrono::milliseconds silence = kSilence) {
    comm::RankState one;
    Ended ended = while_training(overrides, [&](const States& ranks) {
      one = ranks[static_cast<std::size_t>(victim)];
      for (const int signal : signals) {
        if (signal != signals.front()) std::this_thread::sleep_for(silence);
        ::kill(one.process, signal);
      }
    });
    ended.victim = one;
    return ended;
  }
  void expect_down_by_an_error(const RunResult& result);
  // Two ranks with arguments, and directories to run in, of their own.
  static RunResult on_two_of(const std::vector<std::string>& first,
                             const std::vector<std::string>& second,
                             const std::vector<std::string>& directories = {".", "."}) {
    const char* launcher = std::getenv("TRIREME_MPIEXEC");
    std::vector<std::string> command = {launcher != nullptr ? launcher : "mpiexec"};
    for (int rank = 0; rank < 2; ++rank) {
      if (rank == 1) command.push_back(":");
      command.insert(command.end(),
                     {"-n", "1", "-wdir", directories[static_cast<std::size_t>(rank)],
                      std::getenv("TRIREME_BINARY")});
      const auto& arguments = rank == 0 ? first : second;
      command.insert(command.end(), arguments.begin(), arguments.end());
    }
    return run(command, for_ranks({.timeout = 30.0}));
  }
  // Of other words than corpus().
  static void make_corpus_with_tokenizer_of(const fs::path& like, const fs::path& where,
                                            const std::string& name) {
    fs::create_directories(where);
    spill(where / "text", small_text(5000));
    const RunResult result = trireme({"tokenize", "--tokenizer", like.string(), "--out",
                                      where / name, where / "text"});
    EXPECT_EQ(result.status, 0) << result.err;
  }
  static std::vector<std::string> files_in(const fs::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  static std::string name_of(const comm::RankState& state) {
    return fmt::format("rank {} (process {} on {})", state.rank, state.process,
                       state.host);
  }
};

TEST_F(Ranks, KilledRankIsNamedByTheNextStart) {
  // Stopped first: the launcher kills the others within a few milliseconds of the first,
  // too soon to tell who was silent longer.
  const Ended killed = signalled(1, {SIGSTOP, SIGKILL}, {});
  // Some launchers' status is 0 (MPICH 4.2.1).
  EXPECT_THAT(killed.result.out, Not(HasSubstr("Result: ")));
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
                              HasSubstr("comes first (0.1 s apart says little)\n  " +
                                        name_of(killed.victim) + ": ")));
  // That one did.
  const RunResult last = again();
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_THAT(last.out, Not(HasSubstr("cleanly")));
}

TEST_F(Ranks, WhoHangsIsShown) {
  const Ended stopped = signalled(2, {SIGSTOP}, {"run.hang_timeout=2s"});
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

// Its neighbours wait for what it would send, or for its part of a sum.
TEST_F(Ranks, StageThatHangsIsShown) {
  const Ended stopped =
      signalled(1, {SIGSTOP}, {"run.hang_timeout=2s", "parallel.pipeline=3"});
  EXPECT_NE(stopped.result.status, 0);
  EXPECT_NE(stopped.result.status, -1) << "not down";
  EXPECT_LT(stopped.seconds, 2.0 + 10.0);
  EXPECT_THAT(stopped.result.err,
              AllOf(HasSubstr("in group '"), HasSubstr(name_of(stopped.victim) + ": "),
                    HasSubstr("the process is stopped")));
}

// One stage gets the signal, and all stop after the same step.
TEST_F(Ranks, PipelineStopsWithACheckpoint) {
  const Ended stopped = signalled(1, {SIGTERM}, {"parallel.pipeline=3"});
  EXPECT_EQ(stopped.result.status, 75) << stopped.result.err;
  EXPECT_LT(stopped.seconds, 20.0);
  const RunResult whole = trireme({"inspect", "--verify", run_dir().string()});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("all checksums hold"));
}

// The first signal would be heard after the step, which never ends: its rank waits for
// one that is stopped.
TEST_F(Ranks, SecondInterruptEndsARankThatWaitsForEver) {
  const auto interrupt_twice = [](const std::vector<comm::RankState>& ranks) {
    ::kill(ranks[1].process, SIGSTOP);
    ::kill(ranks[0].process, SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    ::kill(ranks[0].process, SIGINT);
  };
  const Ended saved = while_training(
      {"checkpoint.every=2", "checkpoint.keep=1", "checkpoint.async=false"},
      interrupt_twice);
  // The status is the launcher's, which kills the one that is stopped.
  EXPECT_NE(saved.result.status, 0);
  EXPECT_NE(saved.result.status, -1) << "not down";
  EXPECT_LT(saved.seconds, 20.0);
  EXPECT_THAT(saved.result.err,
              HasSubstr("a second ^C (INT): stopped at once, status 75"));
  EXPECT_EQ(trireme({"inspect", "--verify", run_dir().string()}).status, 0);
  fs::remove_all(run_dir());
  const Ended none = while_training({}, interrupt_twice);
  EXPECT_NE(none.result.status, 0);
  EXPECT_THAT(none.result.err, HasSubstr("No checkpoint of this run is published"));
}

// A handler's frame would lie in the data of kernels that keep them below their stack.
// Threads that MPI made before may take signals, too: they run no such kernels.
TEST_F(Ranks, SignalsComeToNoThreadThatComputes) {
  const auto blocks_term = [](const fs::path& task) {
    const std::string status = slurp(task / "status");
    return std::stoull(status.substr(status.find("SigBlk:") + 8), nullptr, 16) &
           (1ull << (SIGTERM - 1));
  };
  const Ended stopped =
      while_training({},
                     [&](const States& ranks) {
                       const fs::path process = fmt::format("/proc/{}", ranks[0].process);
                       int blocking = 0, takers = 0;
                       for (const auto& task : fs::directory_iterator(process / "task")) {
                         blocking += blocks_term(task) ? 1 : 0;
                         if (slurp(task.path() / "comm") == "signals\n") {
                           ++takers;
                           EXPECT_FALSE(blocks_term(task));
                         }
                       }
                       EXPECT_TRUE(blocks_term(process));  // the main thread's
                       EXPECT_GE(blocking, 4);  // it, two of OpenMP's, the loader's
                       EXPECT_EQ(takers, 1);
                       ::kill(ranks[0].process, SIGTERM);
                     },
                     {.environment = {{"OMP_NUM_THREADS", "3"}}});
  EXPECT_EQ(stopped.result.status, 75) << stopped.result.err;
}

TEST_F(Ranks, KilledStageTakesAllDown) {
  const Ended killed = signalled(1, {SIGKILL}, {"parallel.pipeline=3"});
  EXPECT_NE(killed.result.status, 0);
  EXPECT_NE(killed.result.status, -1) << "not down";
  EXPECT_LT(killed.seconds, 10.0);
}

// Who comes after the others have given up finds their memory as it was, or them gone.
TEST_F(Ranks, LateOneDoesNoHarm) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.zero=3"}, {"parallel.pipeline=3"}}) {
    SCOPED_TRACE(layout.front());
    fs::remove_all(run_dir());
    // On a busy machine a rank may be late by a second or two by itself.
    std::vector<std::string> overrides = {"run.hang_timeout=3s", "model.hidden=512"};
    overrides.insert(overrides.end(), layout.begin(), layout.end());
    const Ended late =
        signalled(2, {SIGSTOP, SIGCONT}, overrides, std::chrono::seconds(6));
    EXPECT_EQ(late.result.status, 1);
    EXPECT_THAT(late.result.err,
                AllOf(HasSubstr("the limit is run.hang_timeout"),
                      Not(HasSubstr("signal")), Not(HasSubstr("Bad address"))));
  }
}

// Each call of a step, a validation and a checkpoint is compared before it is made.
TEST_F(Ranks, MakeTheSameCalls) {
  using Keys = std::vector<std::string>;
  for (const auto& [ranks, layout] : std::vector<std::pair<int, Keys>>{
           {2, {"parallel.tensor=2"}},
           {2, {"parallel.tensor=2", "parallel.sequence=true"}},
           {2, {"parallel.zero=0"}},
           {2, {"parallel.zero=1"}},
           {2, {"parallel.zero=3"}},
           {2, {"parallel.pipeline=2"}},
           {2, {"parallel.pipeline=2", "parallel.virtual_pipeline=2"}},
           {2, {"parallel.pipeline=2", "parallel.schedule=zero_bubble"}},
           {4, {"parallel.pipeline=2", "parallel.zero=3", "parallel.virtual_pipeline=2"}},
           {4, {"parallel.pipeline=2", "parallel.zero=3", "parallel.schedule=gpipe"}},
           {4,
            {"parallel.pipeline=2", "parallel.zero=2",
             "parallel.schedule=zero_bubble"}}}) {
    SCOPED_TRACE(layout.back());
    fs::remove_all(run_dir());
    const RunResult result =
        trireme_on_ranks(ranks, train_arguments(layout),
                         {.environment = {{"TRIREME_CHECK_MESSAGES", "1"}}});
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

// A damaged token: only the rank that draws its sample meets it. The others wait for its
// gradients by then; in a wide model weights are still on their way to it.
TEST_F(Ranks, ErrorOfOneRankTakesAllDown) {
  std::string content = slurp(corpus());
  const std::size_t middle = content.size() / 4 * 2;
  content[middle] = content[middle + 1] = '\xff';
  const fs::path damaged = scratch_ / "damaged.h5";
  spill(damaged, content);
  for (const auto& [seed, hidden] : {std::pair{3, 32}, {3, 256}, {4, 256}, {5, 256}}) {
    SCOPED_TRACE(fmt::format("seed {}, hidden {}", seed, hidden));
    fs::remove_all(run_dir());
    const RunResult result = trireme_on_ranks(
        kRanks, train_arguments({"data.train=" + damaged.string(), "run.steps=100000000",
                                 fmt::format("data.seed={}", seed), "parallel.zero=1",
                                 fmt::format("model.hidden={}", hidden),
                                 fmt::format("model.ffn_hidden={}", 4 * hidden),
                                 "checkpoint.every=0", "run.validate_every=0",
                                 fmt::format("batch.global={}", 2 * kRanks)}));
    expect_down_by_an_error(result);
  }
}

void Ranks::expect_down_by_an_error(const RunResult& result) {
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

// All ranks look for the number together, in passes that have messages; each stage and
// axis has its own.
TEST_F(Ranks, LossThatIsNotFiniteIsFound) {
  for (const char* layout : {"parallel.zero=1", "parallel.zero=3", "parallel.tensor=2",
                             "parallel.pipeline=2"}) {
    SCOPED_TRACE(layout);
    fs::remove_all(run_dir());
    const RunResult result = trireme_on_ranks(
        2, train_arguments({layout, "optimizer.lr=1e9", "run.hang_timeout=20s"}));
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("First number that is not finite"),
                                  HasSubstr("The state before the step is in"),
                                  Not(HasSubstr("hang_timeout"))));
    EXPECT_TRUE(fs::exists(run_dir() / "failed"));
  }
}

TEST_F(Ranks, OfDifferentArgumentsAreRefused) {
  auto other = train_arguments({"batch.global=6"});
  const auto arguments = other;
  other.insert(other.end(), {"--set", "run.steps=7"});
  const RunResult result = on_two_of(arguments, other);
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the ranks were started with different arguments: rank 0: "
                              "train "),
                    HasSubstr("; rank 1: train "), HasSubstr("--set run.steps=7")));
  EXPECT_FALSE(fs::exists(run_dir()));
}

// The same name, another file: nodes that each have a disk of their own.
TEST_F(Ranks, OfDifferentDecksAreRefused) {
  const std::vector<std::string> arguments = {"train", "deck.yaml", "--run-dir",
                                              run_dir().string()};
  const std::string text = slurp(deck());
  for (const char* node : {"a", "b"}) {
    fs::create_directories(scratch_ / node);
    spill(scratch_ / node / "deck.yaml", text + "# on node " + node + "\n");
  }
  const RunResult result = on_two_of(
      arguments, arguments, {(scratch_ / "a").string(), (scratch_ / "b").string()});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("the ranks have different decks: rank 0"),
                                HasSubstr("; rank 1"), HasSubstr("checksum")));
  EXPECT_FALSE(fs::exists(run_dir()));
}

// So do the names that the deck gives.
TEST_F(Ranks, WithDifferentCorporaAreRefused) {
  make_corpus_with_tokenizer_of(corpus(), scratch_ / "b", "corpus.h5");
  fs::create_directories(scratch_ / "a");
  fs::copy_file(corpus(), scratch_ / "a/corpus.h5");
  for (const char* key : {"data.train=corpus.h5", "data.validation={other: corpus.h5}"}) {
    SCOPED_TRACE(key);
    const auto arguments = train_arguments({"batch.global=4", key});
    const RunResult result = on_two_of(
        arguments, arguments, {(scratch_ / "a").string(), (scratch_ / "b").string()});
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the ranks have different corpora under the names"),
                      HasSubstr("rank 0 (on "), HasSubstr("; rank 1 (on ")));
    EXPECT_FALSE(fs::exists(run_dir()));
  }
}

TEST_F(Ranks, WithRunDirectoriesOfTheirOwnAreRefused) {
  for (const char* node : {"a", "b"}) fs::create_directories(scratch_ / node);
  auto arguments = train_arguments({"batch.global=4"}, {"--run-dir", "run"});
  const RunResult result = on_two_of(
      arguments, arguments, {(scratch_ / "a").string(), (scratch_ / "b").string()});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the run directory 'run' is not the same for all "
                              "ranks: rank 1 on "),
                    HasSubstr("that all nodes share")));
  EXPECT_THAT(files_in(scratch_ / "a/run"), Not(testing::Contains(HasSubstr("seen"))));
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
  const RunResult result = run(command, for_ranks({}));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the ranks run different programs: ranks 0-1 (on "),
                    HasSubstr("; rank 2 (on "), HasSubstr("checksum")));
  EXPECT_FALSE(fs::exists(run_dir()));
}

}  // namespace
}  // namespace trireme::test

// What a shell may start the program with: closed streams, numbers of threads that are
// none, limits that are too small.
#include <cstdlib>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Surroundings : public Workplace {
 protected:
  // `line` in a shell, where "$0" is the program.
  static RunResult shell(const std::string& line, const RunOptions& options = {}) {
    return run({"/bin/sh", "-c", line, std::getenv("TRIREME_BINARY")}, options);
  }
  static RunResult with_threads(const std::string& variable, const std::string& value) {
    return trireme({"inspect", corpus()}, {.environment = {{variable, value}}});
  }
};

TEST_F(Surroundings, OutputThatCannotArriveIsNoSuccess) {
  const std::string inspect = "\"$0\" inspect '" + corpus().string() + "'";
  for (const std::string& command :
       {inspect, std::string("\"$0\" --help"), std::string("\"$0\" --version")}) {
    for (const char* stdout_gone : {" >&-", " <&- >&-", " >/dev/full"}) {
      expect_error(shell(command + stdout_gone), 1,
                   {"cannot write the output to stdout: "});
    }
    EXPECT_EQ(shell(command + " <&- >&- 2>&-").status, 1) << command;
    const RunResult whole = shell(command + " <&- 2>&-");
    EXPECT_EQ(whole.status, 0) << command;
    EXPECT_THAT(whole.out, Not(IsEmpty()));
  }
}

TEST_F(Surroundings, ThreadsThatAreNoNumberAreRefused) {
  for (const char* value : {"garbage", "0", "-3", "4,", "4,0", "2.5", "0x2"}) {
    const RunResult result = with_threads("OMP_NUM_THREADS", value);
    // OpenMP's runtime has its word first, before the program begins.
    EXPECT_EQ(result.status, 2) << value;
    EXPECT_THAT(result.err, HasSubstr("trireme: OMP_NUM_THREADS is '" +
                                      std::string(value) + "': a whole number"));
    EXPECT_THAT(result.out, IsEmpty());
  }
  for (const char* value : {"garbage", "0", "-3", "4,2"}) {
    expect_refusal(with_threads("KOKKOS_NUM_THREADS", value), {"KOKKOS_NUM_THREADS is"});
  }
  for (const char* value : {"1", " 2 ", "2,1"}) {
    EXPECT_EQ(with_threads("OMP_NUM_THREADS", value).status, 0) << value;
  }
}

TEST_F(Surroundings, MoreThreadsThanCanBeAreRefused) {
  for (const char* value : {"1000", "20000", "100000", "99999999999999999999"}) {
    for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS"}) {
      const RunResult result = trireme({"selftest"}, {.environment = {{name, value}}});
      EXPECT_EQ(result.status, 2) << result.err;
      EXPECT_THAT(result.err, HasSubstr("a rank can have 512 threads at most"));
    }
  }
  // Stacks of 256 MiB in 1.5 GiB of address space.
  const RunResult result = shell(
      "ulimit -s 262144; ulimit -v 1600000; OMP_NUM_THREADS=9 exec \"$0\" selftest");
  expect_refusal(result, {"OMP_NUM_THREADS is 9, but the system lets this process have"});
}

TEST_F(Surroundings, RanksRefuseThreadsTogether) {
  const RunResult result =
      trireme_on_ranks(2, {"selftest"}, {.environment = {{"OMP_NUM_THREADS", "1000"}}});
  EXPECT_EQ(result.status, 2) << result.err;
  const std::string text = "at most";
  EXPECT_EQ(result.err.find(text), result.err.rfind(text)) << result.err;
}

TEST_F(Surroundings, ThreadsThatShareCoresAreWarnedOf) {
  const RunResult result =
      shell("OMP_NUM_THREADS=2 exec taskset -c 0 \"$0\" generate --checkpoint none");
  EXPECT_EQ(result.status, 2);
  const RunResult shared = shell(
      "OMP_NUM_THREADS=2 exec taskset -c 0 \"$0\" generate "
      "--checkpoint none --prompt x");
  EXPECT_THAT(shared.err, HasSubstr("warning: OMP_NUM_THREADS is 2, and this process may "
                                    "run on 1 core:"));
  const RunResult alone = shell(
      "OMP_NUM_THREADS=1 exec taskset -c 0 \"$0\" generate "
      "--checkpoint none --prompt x");
  EXPECT_THAT(alone.err, Not(HasSubstr("warning")));
}

TEST_F(Surroundings, LimitsThatMpiCannotBeginUnderAreNamed) {
  const std::vector<std::pair<std::string, std::string>> limits = {
      {"ulimit -v 270000",
       "limited to 270000 KiB (ulimit -v), and a start with 1 thread needs 589824"},
      {"ulimit -v 400000",
       "limited to 400000 KiB (ulimit -v), and a start with 1 thread needs 589824"},
      {"ulimit -v 300000",
       "limited to 300000 KiB (ulimit -v), and a start with 1 thread needs 589824"},
      {"ulimit -n 24", "may have 24 files open (ulimit -n), and a start needs 64"},
      {"ulimit -f 100", "KiB (ulimit -f), and MPI needs one of 4352 KiB"}};
  for (const auto& [limit, text] : limits) {
    expect_error(shell(limit + "; exec \"$0\" inspect '" + corpus().string() + "'",
                       {.environment = {{"OMP_NUM_THREADS", "1"}}}),
                 1, {text, "raise the limit"});
  }
}

// A login node has many cores, and limits.
TEST_F(Surroundings, LimitsCountThreadsOnlyWhereTheyCompute) {
  const std::string limit = "ulimit -v 1600000; KOKKOS_NUM_THREADS=24 exec \"$0\" ";
  EXPECT_EQ(shell(limit + "jobscript --help").status, 0);
  const RunResult inspected = shell(limit + "inspect '" + corpus().string() + "'");
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  expect_error(shell(limit + "selftest"), 1,
               {"with 24 threads needs 2097152", "OMP_NUM_THREADS"});
}

// More than a start needs, and less than the run.
TEST_F(Surroundings, MemoryThatIsMissingIsSaid) {
  const RunResult result =
      shell("ulimit -v 1600000; OMP_NUM_THREADS=1 exec \"$0\" train '" + deck().string() +
            "' --set model.hidden=2048 --set model.layers=8");
  expect_error(result, 1,
               {"out of memory (", "`trireme train --dry-run` tells what a run takes",
                "limited to 1600000 KiB (ulimit -v)"});
}

// A rank that finds its limit too low takes the others down with it, also where MPI could
// not even begin.
TEST_F(Surroundings, LimitsOfOneRankEndAll) {
  const char* mpiexec = std::getenv("TRIREME_MPIEXEC");
  ASSERT_NE(mpiexec, nullptr);
  const std::vector<std::pair<std::string, std::string>> limits = {
      {"ulimit -f 100", "(ulimit -f), and MPI needs one of 4352 KiB"},
      {"ulimit -S -n 24", "may have 24 files open (ulimit -n)"},
      {"ulimit -n 24", "may have 24 files open (ulimit -n)"}};
  for (const auto& [limit, text] : limits) {
    const RunResult result =
        shell("'" + std::string(mpiexec) + "' -n 1 /bin/sh -c '" + limit +
                  "; exec \"$0\" selftest' \"$0\" : -n 1 \"$0\" selftest",
              {.timeout = 60.0});
    EXPECT_GT(result.status, 0) << result.err;  // of the library, which fails by it, too
    EXPECT_THAT(result.err, HasSubstr(text)) << limit;
  }
}

}  // namespace
}  // namespace trireme::test

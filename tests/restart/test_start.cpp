// Starts that do not come to their first step: a crash ends them, and so does a TERM.
#include <sys/stat.h>

#include <fstream>
#include <stdexcept>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Start : public TrainingRuns {
 protected:
  // Of a start that crashes where it locks its directory.
  RunResult crashed(const std::string& crash, const std::string& variable = "",
                    const std::string& value = "") const {
    const char* library = std::getenv("TRIREME_CRASH_IN_MALLOC_LIBRARY");
    if (library == nullptr) {
      throw std::runtime_error("TRIREME_CRASH_IN_MALLOC_LIBRARY is not set");
    }
    RunOptions options = this->options(2);  // two threads: malloc() locks
    options.environment["LD_PRELOAD"] = library;
    options.environment["TRIREME_TEST_CRASH"] = crash;
    if (!variable.empty()) options.environment[variable] = value;
    return trireme({"train", "deck.yaml", "--run-dir", "run"}, options);
  }

  // Of a start that gets a TERM where it waits for its deck, which never comes.
  RunResult terminated(const std::string& more) const {
    return run({"sh", "-c",
                "mkfifo pipe.yaml; \"$0\" train pipe.yaml " + more +
                    " & child=$!\n"
                    "exec 3> pipe.yaml; kill -TERM $child; wait $child",
                std::getenv("TRIREME_BINARY")},
               options(1));
  }

  // The memory map says what this MPI library is built on.
  static bool has_ucx() {
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)),
                           std::istreambuf_iterator<char>());
    return text.find("/libucs.so") != std::string::npos;
  }
};

// UCX' handler of crashes waited for ever for the lock that malloc() held.
TEST_F(Start, ThatCrashesInMallocEnds) {
  const RunResult result = crashed("malloc");
  EXPECT_EQ(result.status, 128 + SIGSEGV) << result.out << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("Caught signal")));
}

TEST_F(Start, ThatCrashesIsReportedWhereItWasAskedFor) {
  if (!has_ucx()) return;  // nobody reports
  for (const auto& [variable, value] : {std::pair("UCX_HANDLE_ERRORS", "bt"),
                                        std::pair("UCX_ERROR_SIGNALS", "SIGSEGV")}) {
    const RunResult result = crashed("plain", variable, value);
    EXPECT_GE(result.status, 128) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("Caught signal 11")) << variable;
  }
  EXPECT_THAT(crashed("plain").err, Not(HasSubstr("Caught signal")));
}

TEST_F(Start, ThatHangsEndsByTerm) {
  const RunResult result = terminated("--run-dir run");
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("ended by TERM: the run had not begun"));
}

TEST_F(Start, OfADryRunEndsByTermAtOnce) {
  const RunResult result = terminated("--dry-run");
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.out << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("trireme")));
}

}  // namespace
}  // namespace trireme::test

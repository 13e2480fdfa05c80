// tests/support/run_binary.hpp — runs a program as a user would and keeps what it
// printed.
#ifndef TRIREME_TESTS_SUPPORT_RUN_BINARY_HPP_
#define TRIREME_TESTS_SUPPORT_RUN_BINARY_HPP_

#include <map>
#include <string>
#include <vector>

namespace trireme::test {

struct RunOptions {
  std::map<std::string, std::string> environment = {};  // added to this process' own
  std::string directory = {};                           // to run in; empty: this one
  double timeout = 120.0;                               // seconds, then it is killed
};

struct RunResult {
  int status = -1;  // exit status; 128 + signal where it was killed; -1: timeout
  std::string out, err;
};

// command[0] is looked for in PATH. Throws std::runtime_error where it cannot be run.
RunResult run(const std::vector<std::string>& command, const RunOptions& options = {});

// The program under test (TRIREME_BINARY) with these arguments; alone, or on some ranks.
// Where TRIREME_TRAIN_LATE is set, trainings have late copies (base/late_queue.hpp).
RunResult trireme(const std::vector<std::string>& arguments,
                  const RunOptions& options = {});
RunResult trireme_on_ranks(int ranks, const std::vector<std::string>& arguments,
                           const RunOptions& options = {});
// What ranks have besides, where the options do not say otherwise: one thread each, and
// waits in MPI that leave the core to others (patient_waits.c).
RunOptions for_ranks(RunOptions options);

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_RUN_BINARY_HPP_

// apps/main.cpp — trireme: one program with a subcommand for each thing it does.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string_view>

#include "apps/brief_spinning.hpp"
#include "apps/command_line.hpp"
#include "apps/run_guarded.hpp"
#include "apps/standard_streams.hpp"
#include "apps/subcommands.hpp"
#include "apps/thread_settings.hpp"
#include "base/cpu_check.hpp"
#include "base/device.hpp"
#include "base/error.hpp"
#include "base/error_message.hpp"
#include "comm/environment.hpp"
#include "comm/system_limits.hpp"
#include "job/stop_request.hpp"

namespace {

using namespace trireme;

// Whether one of the options begins like this.
bool has_option(int argc, char** argv, std::string_view option) {
  return std::any_of(argv + std::min(argc, 2), argv + argc,
                     [&](std::string_view word) { return word.starts_with(option); });
}

// Whether the command line asks for a dry run, which trains nothing.
bool is_dry(int argc, char** argv) {
  return has_option(argc, argv, "--dry-run");
}

// Whether a subcommand has teams of threads at work for long.
bool has_teams(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view subcommand = argv[1];
  for (const char* name :
       {"train", "generate", "evaluate", "embed", "fill", "selftest"}) {
    if (subcommand == name) return true;
  }
  return subcommand == "plan" && has_option(argc, argv, "--measure");
}

// Says what keeps the program from going on; the status to end with.
int complain(std::string_view problem, int status) {
  std::fprintf(stderr, "trireme: %.*s\n", static_cast<int>(problem.size()),
               problem.data());
  return status;
}

// What has to be set before MPI and any thread: signals, and what CUDA reads when it
// begins, which may be within MPI.
void set_up_process(int argc, char** argv) {
  set_device_variables();
  // A limit on the size of files (ulimit -f) is to be an error of the write, not a death.
  std::signal(SIGXFSZ, SIG_IGN);

  // A request to save and stop may come at any time from here on. What saves nothing
  // ends by signals as any program does.
  if (argc > 1 && std::string_view(argv[1]) == "train" && !is_dry(argc, argv)) {
    job::StopRequest::listen_early();
  }
}

// Reads the command line; a status where it is wrong, or asks for help alone.
std::optional<int> parse(apps::CommandLine& line, int argc, char** argv, bool speaks) {
  apps::add_train(line, argc, argv);
  apps::add_tokenize(line);
  apps::add_inspect(line);
  apps::add_convert(line);
  apps::add_generate(line);
  apps::add_evaluate(line);
  apps::add_embed(line);
  apps::add_fill(line);
  apps::add_jobscript(line);
  apps::add_plan(line);
  apps::add_selftest(line);
  const auto status = line.parse(argc, argv, speaks);
  if (!status || *status != 0) return status;        // wrong arguments
  const std::string problem = apps::flush_output();  // of --help or --version
  return problem.empty() ? 0 : complain(problem, apps::kExitError);
}

}  // namespace

int main(int argc, char** argv) {
  apps::hold_standard_streams();

  // 1. Can this CPU run the program at all? Compiled without TRIREME_ARCH, so that this
  //    much runs everywhere.
  char problem[1024];
  if (!cpu_runs_this_build(problem, sizeof(problem))) {
    complain(problem, apps::kExitError);
    comm::Environment::abort_before_start(argc, argv, apps::kExitError);
  }

  // Threads that wait for each other sleep soon: what runs them reads that before main().
  const apps::ThreadCheck threads;
  const bool computes = has_teams(argc, argv);
  const int team = computes ? threads.threads() : 1;  // 0: its share of the node's cores
  if (computes && threads.is_sound()) apps::spin_briefly(argv);

  set_up_process(argc, argv);

  // 2. MPI, for the life of the program, where the system has room for it.
  if (const std::string problem = comm::limit_problem(comm::find_system_limits(team));
      !problem.empty()) {
    if (comm::is_first_of_node()) complain(problem, apps::kExitError);
    comm::Environment::abort_before_start(argc, argv, apps::kExitError);
  }
  std::optional<comm::Environment> environment;
  try {
    environment.emplace(argc, argv);
  } catch (const InputError& error) {
    return *error.what() != '\0' ? complain(error.what(), apps::kExitInput)
                                 : apps::kExitInput;
  } catch (const std::exception& error) {
    return complain(message_of(error), apps::kExitError);
  }

  // 3. The command line: every rank reads the same one, rank 0 speaks.
  const bool speaks = environment->world_rank() == 0;
  if (const std::string problem = apps::different_arguments(*environment, argc, argv);
      !problem.empty()) {
    return speaks ? complain(problem, apps::kExitInput) : apps::kExitInput;
  }
  if (const std::string problem = threads.problem(*environment, team); !problem.empty()) {
    return speaks ? complain(problem, apps::kExitInput) : apps::kExitInput;
  }
  apps::CommandLine line;
  if (const auto status = parse(line, argc, argv, speaks)) return *status;
  // What trains tells of all ranks' cores, with the placement.
  const bool is_alone = computes && argv[1] != std::string("train");
  if (const std::string warning = threads.warning();
      is_alone && speaks && !warning.empty()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }

  // 4. Kokkos, where something is computed, and what the user asked for.
  return apps::run_guarded(
      *environment, line.action(),
      {.threads = team, .computes = computes && !is_dry(argc, argv)});
}

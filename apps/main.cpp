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
#include "base/error.hpp"
#include "base/error_message.hpp"
#include "comm/environment.hpp"
#include "comm/system_limits.hpp"
#include "job/stop_request.hpp"

namespace {

// Whether a subcommand has teams of threads at work for long.
bool computes(std::string_view subcommand) {
  for (const char* name : {"train", "generate", "evaluate", "selftest"}) {
    if (subcommand == name) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trireme;
  apps::hold_standard_streams();

  // 1. Can this CPU run the program at all? Compiled without TRIREME_ARCH, so that this
  //    much runs everywhere.
  char problem[1024];
  if (!cpu_runs_this_build(problem, sizeof(problem))) {
    std::fprintf(stderr, "trireme: %s\n", problem);
    comm::Environment::abort_before_start(argc, argv, apps::kExitError);
  }

  // Threads that wait for each other sleep soon: what runs them reads that before main().
  const apps::ThreadCheck threads;
  const bool has_teams = argc > 1 && computes(argv[1]);
  const int team = has_teams ? threads.threads() : 1;  // 0: its share of the node's cores
  if (has_teams && threads.is_sound()) apps::spin_briefly(argv);

  // A limit on the size of files (ulimit -f) is to be an error of the write, not a death.
  std::signal(SIGXFSZ, SIG_IGN);

  // A request to save and stop may come at any time from here on. What saves nothing
  // ends by signals as any program does.
  const auto is_dry = [](std::string_view word) { return word.starts_with("--dry-run"); };
  if (argc > 1 && std::string_view(argv[1]) == "train" &&
      std::none_of(argv + 2, argv + argc, is_dry)) {
    job::StopRequest::listen_early();
  }

  // 2. MPI, for the life of the program, where the system has room for it.
  if (const std::string problem = comm::limit_problem(comm::find_system_limits(team));
      !problem.empty()) {
    if (comm::is_first_of_node()) std::fprintf(stderr, "trireme: %s\n", problem.c_str());
    comm::Environment::abort_before_start(argc, argv, apps::kExitError);
  }
  std::optional<comm::Environment> environment;
  try {
    environment.emplace(argc, argv);
  } catch (const InputError& error) {
    if (*error.what() != '\0') std::fprintf(stderr, "trireme: %s\n", error.what());
    return apps::kExitInput;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trireme: %s\n", message_of(error).c_str());
    return apps::kExitError;
  }

  // 3. The command line: every rank reads the same one, rank 0 speaks.
  const bool speaks = environment->world_rank() == 0;
  if (const std::string problem = apps::different_arguments(*environment, argc, argv);
      !problem.empty()) {
    if (speaks) std::fprintf(stderr, "trireme: %s\n", problem.c_str());
    return apps::kExitInput;
  }
  if (const std::string problem = threads.problem(*environment, team); !problem.empty()) {
    if (speaks) std::fprintf(stderr, "trireme: %s\n", problem.c_str());
    return apps::kExitInput;
  }
  apps::CommandLine line;
  apps::add_train(line, argc, argv);
  apps::add_tokenize(line);
  apps::add_inspect(line);
  apps::add_convert(line);
  apps::add_generate(line);
  apps::add_evaluate(line);
  apps::add_jobscript(line);
  apps::add_selftest(line);
  if (const auto status = line.parse(argc, argv, speaks)) {
    if (*status != 0) return *status;                  // wrong arguments
    const std::string problem = apps::flush_output();  // of --help or --version
    if (problem.empty()) return 0;
    std::fprintf(stderr, "trireme: %s\n", problem.c_str());
    return apps::kExitError;
  }
  // What trains tells of all ranks' cores, with the placement.
  const bool is_alone = has_teams && argv[1] != std::string("train");
  if (const std::string warning = threads.warning();
      is_alone && speaks && !warning.empty()) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }

  // 4. Kokkos, and what the user asked for.
  return apps::run_guarded(*environment, line.action(), team);
}

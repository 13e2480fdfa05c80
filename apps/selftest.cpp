// apps/selftest.cpp — `trireme selftest`: a table of checks for a new machine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/command_line.hpp"
#include "apps/run_guarded.hpp"
#include "apps/subcommands.hpp"
#include "base/format.hpp"
#include "base/machine.hpp"
#include "base/plural.hpp"
#include "check/selftest.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {
namespace {

void print_line(const std::string& line) {
  std::fprintf(stdout, "%s\n", line.c_str());
  std::fflush(stdout);
}

void print_machine(const Machine& machine, const comm::Environment& environment) {
  print_line(
      fmt::format("host        {}, {} ({})", machine.host, machine.cpu, machine.isa));
  print_line(fmt::format("            {}, {} of memory",
                         format_plural(machine.cores, "core"),
                         human_bytes(static_cast<std::uint64_t>(machine.memory_bytes))));
  print_line(fmt::format("Kokkos      {}{}{}, {} per rank", machine.backend,
                         machine.device.empty() ? "" : " on ", machine.device,
                         format_plural(machine.threads, "thread")));
  print_line(fmt::format("MPI         {}", environment.library()));
  print_line(fmt::format("ranks       {}, {} on this node\n", environment.world_size(),
                         environment.node().ranks));
}

int run_selftest(const std::string& json, const comm::Environment& environment) {
  const bool speaks = environment.world_rank() == 0;
  const Machine machine = find_machine();
  if (speaks) print_machine(machine, environment);

  double seconds = 0;
  int failed = 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  check::selftest(environment, [&](const check::CheckResult& check) {
    seconds += check.seconds;
    if (!check.passed) ++failed;
    list.push_back({{"name", check.name},
                    {"passed", check.passed},
                    {"figures", check.figures},
                    {"seconds", check.seconds}});
    if (speaks) {
      const std::string head =
          fmt::format("{:<7} {:<20} {:6.2f} s  ", check.passed ? "ok" : "FAILED",
                      check.name, check.seconds);
      print_line(head + wrap_words(check.figures, kScreenColumns, display_width(head)));
    }
  });
  if (speaks) {
    print_line(fmt::format("\n{} of {} passed in {:.1f} s", list.size() - failed,
                           format_plural(list.size(), "check"), seconds));
    if (!json.empty()) {
      const nlohmann::ordered_json result = {{"host", machine.host},
                                             {"cpu", machine.cpu},
                                             {"backend", machine.backend},
                                             {"device", machine.device},
                                             {"threads", machine.threads},
                                             {"ranks", environment.world_size()},
                                             {"mpi", environment.library()},
                                             {"passed", failed == 0},
                                             {"checks", list}};
      io::write_file(json, io::json_text(result, 2) + "\n");
    }
  }
  return failed == 0 ? 0 : kExitError;
}

}  // namespace

void add_selftest(CommandLine& line) {
  const auto json = std::make_shared<std::string>();
  CLI::App& command = line.add_command(
      "selftest",
      "Check machine, build and MPI in five seconds; also under mpiexec or srun.",
      [json](comm::Environment& environment) {
        comm::on_first_rank(*environment.world(), [&] { require_output(*json); });
        return run_selftest(*json, environment);
      });
  command.add_option("--json", *json, "write the results to this file too");
}

}  // namespace trireme::apps

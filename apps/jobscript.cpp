// apps/jobscript.cpp — `trireme jobscript`: an sbatch script that trains a deck on a
// machine.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "apps/command_line.hpp"
#include "apps/program_files.hpp"
#include "apps/subcommands.hpp"
#include "base/log.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "job/job_script.hpp"

namespace trireme::apps {

namespace {

struct JobScriptArguments {
  job::JobScriptOptions options;
  std::string out;
};

void write_script(const JobScriptArguments& arguments) {
  require_output(arguments.out, {arguments.options.deck});
  job::JobScriptOptions options = arguments.options;
  options.program = program_path();
  options.slurm = shared_files() / "slurm";
  options.directory = std::filesystem::current_path();
  options.warn = [](const std::string& text) { Log().warning("{}", text); };
  if (const char* modules = std::getenv("LOADEDMODULES")) options.modules = modules;
  const std::string script = job::job_script(options);
  if (arguments.out.empty()) {
    std::fputs(script.c_str(), stdout);
  } else {
    io::write_file(arguments.out, script);
  }
}

}  // namespace

void add_jobscript(CommandLine& line) {
  const auto arguments = std::make_shared<JobScriptArguments>();
  CLI::App& command = line.add_command(
      "jobscript", "Write the sbatch script that trains a deck",
      [arguments](comm::Environment& environment) {
        comm::on_first_rank(*environment.world(), [&] { write_script(*arguments); });
        return 0;
      });
  job::JobScriptOptions& options = arguments->options;
  command.add_option("DECK", options.deck, "Deck: checked for the ranks of the job")
      ->required();
  command
      .add_option(
          "--machine", options.machine,
          "File with what the machine needs, or the name of one in slurm/machines")
      ->type_name("NAME")
      ->required();
  command.add_option("--nodes", options.nodes, "Nodes of the job")
      ->check(CLI::Range(1, 1 << 20))
      ->required();
  command
      .add_option("--time", options.time,
                  "Wall time of the job: 4:00:00, 1-12 (days-hours), 90m")
      ->required();
  command
      .add_option("--out", arguments->out, "Write the script to a file, not to stdout")
      ->type_name("FILE");
  add_deck_changes(command, options.overrides, options.run_dir);
  command.add_option("--name", options.name, "Name of the job; without it the deck's");
  command.add_option("--account", options.account, "Who pays for the job");
  command.add_option("--partition", options.partition, "Where the job waits");
}

}  // namespace trireme::apps

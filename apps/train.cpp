// apps/train.cpp — `trireme train`: trains the model of a deck, or only checks the deck
// (--dry-run). A check takes one rank, whatever the deck asks for: so it runs where a job
// is prepared. What a run is going to write beside its directory is looked at before it
// begins, as hours later is too late.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/log.hpp"
#include "check/deck_check.hpp"
#include "comm/on_ranks.hpp"
#include "config/deck_error.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "plan/dry_run.hpp"
#include "run/trainer.hpp"

namespace trireme::apps {

namespace {

struct TrainArguments {
  run::TrainOptions options;
  bool dry_run = false, all_stages = false;
  std::int64_t ranks = 0;
  std::string json;
};

std::string errors_json(const std::vector<config::DeckError>& errors) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const config::DeckError& error : errors) {
    list.push_back({{"key", error.key},
                    {"place", error.place},
                    {"value", error.value},
                    {"what", error.what},
                    {"allowed", error.allowed},
                    {"fix", error.fix}});
  }
  return io::json_text(nlohmann::ordered_json{{"errors", list}}, 2) + "\n";
}

// `ranks` 0: as many as the deck's grid asks for.
void run_dry(const TrainArguments& arguments, int ranks) {
  check::DeckCheckOptions options = arguments.options;
  options.ranks = ranks;
  require_output(arguments.json, {options.deck});
  try {
    const plan::DryRun result =
        plan::dry_run(options, arguments.all_stages ? plan::StagesShown::all
                                                    : plan::StagesShown::that_differ);
    for (const std::string& warning : result.warnings) Log().warning("{}", warning);
    std::fputs(result.text().c_str(), stdout);
    if (!arguments.json.empty()) io::write_file(arguments.json, result.json());
  } catch (const config::DeckErrors& errors) {
    if (!arguments.json.empty()) {
      io::write_file(arguments.json, errors_json(errors.errors()));
    }
    throw;
  }
}

// What is measured of a training run: options that a dry run has no use for.
std::vector<CLI::Option*> add_measurements(CLI::App& command,
                                           run::TrainOptions& options) {
  CLI::Option* const trace =
      command
          .add_option("--trace", options.trace,
                      "Write a timeline of all ranks, for ui.perfetto.dev")
          ->type_name("FILE");
  command
      .add_option("--trace-steps", options.trace_steps,
                  "Steps of this start that the timeline shows")
      ->type_name("FIRST-LAST")
      ->capture_default_str()
      ->needs(trace);
  CLI::Option* const profile =
      command
          .add_flag("--profile{all}", options.profile,
                    "Say at the end what each kernel took beside its bound: of so many "
                    "steps after the second (--profile=10), or of all")
          ->type_name("[=STEPS]");
  return {trace, profile};
}

// Standard output and standard error have the run's progress: a trace cannot go there.
void require_trace_file(const run::TrainOptions& options) {
  TRIREME_REQUIRE_INPUT(
      options.trace != "-" && (options.trace.empty() || !io::is_stream(options.trace)),
      "--trace {}: a trace is a file of its own, for a viewer: name one, such as "
      "trace.json",
      options.trace);
  require_output(options.trace, {options.deck});
}

}  // namespace

void add_train(CommandLine& line, int argc, char** argv) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App& command = line.add_command(
      "train", "Train the model that a deck describes",
      [arguments](comm::Environment& environment) {
        comm::Communicator& world = *environment.world();
        if (!arguments->dry_run) {
          const run::TrainOptions& options = arguments->options;
          comm::on_first_rank(world, [&] { require_trace_file(options); });
          return run::train(options, environment);
        }
        int ranks = static_cast<int>(arguments->ranks);
        if (ranks == 0 && environment.world_size() > 1) ranks = environment.world_size();
        comm::on_first_rank(world, [&] { run_dry(*arguments, ranks); });
        return 0;
      });
  run::TrainOptions& options = arguments->options;
  command.add_option("DECK", options.deck, "Deck: docs/deck.md has every key")
      ->required();
  add_deck_changes(command, options.overrides, options.run_dir);
  command
      .add_option("--resume", options.resume,
                  "never: refuse an existing run; auto: begin, continue or do nothing as "
                  "fits; or a checkpoint to continue from")
      ->type_name("never|auto|CKPT")
      ->capture_default_str();
  command
      .add_option("--init-from", options.init_from, "Weights of another run's checkpoint")
      ->type_name("CKPT");
  command
      .add_option(
          "--fault", options.fault,
          "Make something go wrong, to try a system: kill:rank=3,phase=ckpt.write")
      ->type_name("PLAN");
  command.add_flag("--late", options.late, "Copies come late, as on a GPU: for tests")
      ->group("");
  CLI::Option* const dry_run = command.add_flag(
      "--dry-run", arguments->dry_run,
      "Check the deck; print parameters, FLOPs and memory; do nothing else");
  for (CLI::Option* const option : add_measurements(command, options)) {
    dry_run->excludes(option);
  }
  command.add_option("--ranks", arguments->ranks, "Ranks to check the deck for")
      ->needs(dry_run)
      ->check(CLI::Range(1, 1 << 24));
  command
      .add_flag("--all-stages", arguments->all_stages,
                "Show every stage of a pipeline of more than 64, too")
      ->needs(dry_run);
  command
      .add_option("--json", arguments->json, "Write the dry run's result to a file, too")
      ->type_name("FILE")
      ->needs(dry_run);
  if (argc > 0) options.program = argv[0];
  options.command_line = shell_text(argc, argv);
}

}  // namespace trireme::apps

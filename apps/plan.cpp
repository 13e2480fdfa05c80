// apps/plan.cpp — `trireme plan`: how long a deck's steps take on a machine that a file
// describes, and which layout is fastest.
//
// Rank 0 alone plans, as that computes nothing on a device; only --measure asks all
// ranks, since they are the devices of the machine that it describes. With --from the
// machine is what a run on it found: the deck of that run lies beside its report. With
// --network it has another machine's network after that.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "check/deck_check.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "plan/calibration.hpp"
#include "plan/machine.hpp"
#include "plan/measure_machine.hpp"
#include "plan/plan_report.hpp"

namespace trireme::apps {

namespace {

struct PlanArguments {
  check::DeckCheckOptions deck;
  plan::PlanOptions options;
  std::string machine, from, network, json, out;
  bool is_measured = false;
};

// Written as a comparison that no NaN passes.
std::string is_a_number_of_tokens(const std::string& text) {
  constexpr double kMost = 1e18;
  double tokens = 0.0;
  if (CLI::detail::lexical_cast(text, tokens) && tokens >= 1.0 && tokens <= kMost) {
    return "";
  }
  return fmt::format("{} is no number of tokens, from 1 to 1e18", text);
}

// Collective: all ranks measure, the first one writes.
void measure(const PlanArguments& arguments, comm::Environment& environment) {
  comm::on_first_rank(*environment.world(), [&] { require_output(arguments.out); });
  const plan::MeasuredMachine measured = plan::measure_machine(environment.world());
  const std::string text = plan::machine_text(measured.machine, measured.doubts);
  comm::on_first_rank(*environment.world(), [&] {
    std::fputs(text.c_str(), stdout);
    if (!measured.doubts.empty()) {
      Log().warning(
          "the host was used by others while it was measured: some numbers are at "
          "their limits (see the file's head). Measure again");
    }
    if (!arguments.out.empty()) io::write_file(arguments.out, text);
  });
}

// What --from names, and the deck that lies beside it.
struct RunFiles {
  std::string report, deck;
};
RunFiles files_of(const std::string& from) {
  if (from.empty()) return {};
  io::Path report = from;
  if (std::filesystem::is_directory(report)) report /= "efficiency.json";
  return {report.string(), (report.parent_path() / "deck.yaml").string()};
}

// By the run in this directory, or whose report this is. Nothing without one.
std::optional<plan::Calibration> calibration_of(const std::string& from,
                                                const plan::Machine& machine) {
  if (from.empty()) return {};
  const RunFiles files = files_of(from);
  const plan::RunTimes run = plan::run_times(io::read_file(files.report), files.report);
  check::DeckCheckOptions check;
  check.deck = files.deck;
  check.ranks = run.devices;
  return plan::calibrate(machine, check::check_deck(check).deck, run);
}

// The machine to plan for: as its file says, or as the run found it, and with another
// one's network where that is asked for.
plan::Machine machine_to_plan_for(const PlanArguments& arguments,
                                  std::optional<plan::Calibration>& calibration) {
  plan::Machine machine = plan::load_machine(arguments.machine);
  calibration = calibration_of(arguments.from, machine);
  if (calibration) machine = calibration->machine;
  if (arguments.network.empty()) return machine;
  return plan::with_network(std::move(machine), plan::load_machine(arguments.network));
}

// For a search the deck's own layout is nothing to check against the devices.
void make_plan(const PlanArguments& arguments) {
  TRIREME_REQUIRE_INPUT(!arguments.deck.deck.empty() && !arguments.machine.empty(),
                        "plan: a deck and --machine FILE are needed; without a file of "
                        "the machine, trireme plan --measure makes one of this machine");
  const RunFiles run = files_of(arguments.from);
  const std::vector<std::string> inputs = {arguments.deck.deck, arguments.machine,
                                           run.report, run.deck, arguments.network};
  require_apart({{"--json", arguments.json}, {"--out", arguments.out}});
  require_output(arguments.json, inputs);
  require_output(arguments.out, inputs);
  std::optional<plan::Calibration> calibration;
  const plan::Machine machine = machine_to_plan_for(arguments, calibration);
  plan::PlanOptions options = arguments.options;
  if (options.devices == 0) options.devices = machine.network.back().devices;
  check::DeckCheckOptions check = arguments.deck;
  check.ranks = options.is_fixed ? options.devices : 0;
  const check::CheckedDeck checked = check::check_deck(check);
  for (const std::string& warning : checked.warnings) Log().warning("{}", warning);
  plan::PlanReport report = plan::make_plan(checked.deck, machine, options);
  report.calibration = std::move(calibration);
  std::fputs(report.text().c_str(), stdout);
  if (report.calibration && !report.calibration->doubts.empty()) {
    Log().warning(
        "'{}' is hardly a run on the machine of '{}', and this plan is not to be trusted "
        "(it says why)",
        report.calibration->file, arguments.machine);
  }
  if (!arguments.json.empty()) io::write_file(arguments.json, report.json());
  if (!arguments.out.empty()) io::write_file(arguments.out, report.deck_text());
}

}  // namespace

void add_plan(CommandLine& line) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App& command = line.add_command(
      "plan", "Predict a deck's steps on a machine, and find the fastest layout",
      [arguments](comm::Environment& environment) {
        if (arguments->is_measured) {
          measure(*arguments, environment);
        } else {
          comm::on_first_rank(*environment.world(), [&] { make_plan(*arguments); });
        }
        return 0;
      });
  CLI::Option* const deck = command.add_option("DECK", arguments->deck.deck,
                                               "Deck: its model, precision and batch");
  command
      .add_option("--machine", arguments->machine,
                  "File that describes the machine: inputs/machines has some")
      ->type_name("FILE")
      ->needs(deck);
  command
      .add_option("--from", arguments->from,
                  "A run on this machine, its directory or its efficiency.json, to "
                  "calibrate the file by")
      ->type_name("RUN")
      ->needs(deck);
  command
      .add_option("--network", arguments->network,
                  "File of a machine whose network is put in place of that machine's")
      ->type_name("FILE")
      ->needs(deck);
  command
      .add_option("--devices", arguments->options.devices,
                  "Devices, a rank each; without it those of the machine")
      ->check(CLI::Range(1, 1 << 24))
      ->needs(deck);
  command
      .add_flag("--measure", arguments->is_measured,
                "Print a machine file of this machine: of the ranks it is started with")
      ->excludes(deck);
  command
      .add_flag("--fixed", arguments->options.is_fixed,
                "Predict the deck's own layout; search none")
      ->needs(deck);
  command
      .add_option("--tokens", arguments->options.tokens,
                  "Tokens of the whole training; without it those of run.steps")
      ->type_name("NUMBER")
      ->check(is_a_number_of_tokens)
      ->needs(deck);
  add_deck_changes(command, arguments->deck.overrides, arguments->deck.run_dir);
  command.add_option("--json", arguments->json, "Write the result to a file, too")
      ->type_name("FILE")
      ->needs(deck);
  command
      .add_option("--out", arguments->out,
                  "Write the deck with the fastest layout (or the machine file) there")
      ->type_name("FILE");
}

}  // namespace trireme::apps

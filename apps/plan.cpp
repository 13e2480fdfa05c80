// apps/plan.cpp — `trireme plan`: how long a deck's steps take on a machine that a file
// describes, and which layout is fastest.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "check/deck_check.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "plan/machine.hpp"
#include "plan/plan_report.hpp"

namespace trireme::apps {

namespace {

struct PlanArguments {
  check::DeckCheckOptions deck;
  plan::PlanOptions options;
  std::string machine, json, out;
};

// For a search the deck's own layout is nothing to check against the devices.
void make_plan(const PlanArguments& arguments) {
  const std::vector<std::string> inputs = {arguments.deck.deck, arguments.machine};
  require_output(arguments.json, inputs);
  require_output(arguments.out, inputs);
  check::DeckCheckOptions check = arguments.deck;
  check.ranks = arguments.options.is_fixed ? arguments.options.devices : 0;
  const plan::Machine machine = plan::load_machine(arguments.machine);
  const check::CheckedDeck checked = check::check_deck(check);
  const plan::PlanReport report =
      plan::make_plan(checked.deck, machine, arguments.options);
  std::fputs(report.text().c_str(), stdout);
  if (!arguments.json.empty()) io::write_file(arguments.json, report.json());
  if (!arguments.out.empty()) io::write_file(arguments.out, report.deck_text());
}

}  // namespace

void add_plan(CommandLine& line) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App& command = line.add_command(
      "plan", "Predict a deck's steps on a machine, and find the fastest layout",
      [arguments](comm::Environment& environment) {
        comm::on_first_rank(*environment.world(), [&] { make_plan(*arguments); });
        return 0;
      });
  command
      .add_option("DECK", arguments->deck.deck, "Deck: its model, precision and batch")
      ->required();
  command
      .add_option("--machine", arguments->machine,
                  "File that describes the machine: inputs/machines has some")
      ->type_name("FILE")
      ->required();
  command.add_option("--devices", arguments->options.devices, "Devices, a rank each")
      ->check(CLI::Range(1, 1 << 24))
      ->required();
  command.add_flag("--fixed", arguments->options.is_fixed,
                   "Predict the deck's own layout; search none");
  command
      .add_option("--tokens", arguments->options.tokens,
                  "Tokens of the whole training; without it those of run.steps")
      ->check(CLI::PositiveNumber);
  add_deck_changes(command, arguments->deck.overrides, arguments->deck.run_dir);
  command.add_option("--json", arguments->json, "Write the result to a file, too")
      ->type_name("FILE");
  command
      .add_option("--out", arguments->out, "Write the deck with the fastest layout there")
      ->type_name("FILE");
}

}  // namespace trireme::apps

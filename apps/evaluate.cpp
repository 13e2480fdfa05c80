// apps/evaluate.cpp — `trireme evaluate`: what a checkpoint makes of a corpus.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/progress_line.hpp"
#include "apps/subcommands.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "data/datasets.hpp"
#include "inference/evaluation.hpp"
#include "io/files.hpp"

namespace trireme::apps {
namespace {

struct EvaluateArguments {
  inference::EvaluateOptions options;
  std::string split, json;
};

int run_evaluate(EvaluateArguments arguments, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  const bool speaks = world.rank() == 0;
  Log log(speaks);
  inference::EvaluateOptions& options = arguments.options;
  if (!arguments.split.empty()) options.split = data::split_from(arguments.split);
  comm::on_first_rank(world, [&] {
    require_apart({{"--resume", options.progress_file}, {"--json", arguments.json}});
    require_output(options.progress_file, options.data);
    require_output(arguments.json, options.data);
  });

  ProgressLine line(speaks);
  const auto show = [&](const inference::EvaluationStatus& status) {
    if (!line.is_due()) return;
    line.show(fmt::format("{}: {:3.0f} %  {}  {} left", status.set, 100.0 * status.share,
                          format_rate(status.tokens_per_second,
                                      inference::counted_words(status.every_word)),
                          format_duration(status.seconds_left)));
  };
  const inference::Evaluation evaluation =
      inference::evaluate(options, environment, log, show);
  if (!speaks) return 0;
  std::fputs(evaluation.text().c_str(), stdout);
  if (!arguments.json.empty()) io::write_file(arguments.json, evaluation.json());
  return 0;
}

}  // namespace

void add_evaluate(CommandLine& line) {
  const auto arguments = std::make_shared<EvaluateArguments>();
  inference::EvaluateOptions& options = arguments->options;
  CLI::App& command = line.add_command(
      "evaluate",
      "Loss, perplexity and bits per byte of a trained model on a corpus. Under mpiexec "
      "the ranks share the samples, or the model (--set parallel.tensor=2).",
      [arguments](comm::Environment& environment) {
        return run_evaluate(*arguments, environment);
      });
  command
      .add_option("--checkpoint", options.checkpoint,
                  "run directory, its checkpoints, one step_* directory or latest")
      ->required();
  command
      .add_option(
          "--data", options.data,
          "a corpus (repeatable: each is evaluated by itself); without it, the corpora "
          "of the run")
      ->allow_extra_args(false);
  command
      .add_option(
          "--split", arguments->split,
          "the part that the run's data.split makes of them; without it, all of --data, "
          "and the validation of the run")
      ->check(CLI::IsMember({"train", "validation", "test"}));
  command
      .add_option("--set", options.overrides,
                  "layout and type of this evaluation: parallel.tensor=2, batch.micro=8, "
                  "precision.compute=bf16 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--samples", options.samples, "windows to look at, at most; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  command.add_flag("--tail", options.tail,
                   "with a split, count the tokens behind its last whole window, too");
  command
      .add_option("--resume", options.progress_file,
                  "keep what is done in this file, and go on from it where it is there")
      ->type_name("FILE");
  command
      .add_option("--fault", options.fault, "make something go wrong, to try a system")
      ->type_name("PLAN");
  command.add_option("--json", arguments->json, "write the result to this file too");
}

}  // namespace trireme::apps

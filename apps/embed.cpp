// apps/embed.cpp — `trireme embed`: vectors of texts, by a BERT.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "apps/command_line.hpp"
#include "apps/progress_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "inference/embedding.hpp"

namespace trireme::apps {
namespace {

struct EmbedArguments {
  inference::EmbedOptions options;
  std::string text, jsonl, key = "text", pool = "mean";
  bool overwrite = false;
};

// What has the output's name took work, as a corpus does.
void check_output(const EmbedArguments& arguments, Log& log) {
  const std::string& out = arguments.options.out;
  require_no_input(out, {arguments.options.texts});
  remove_leftovers(out, log);
  require_product(out,
                  {.one = "file of vectors",
                   .many = "files of vectors",
                   .datasets = {"embeddings", "offsets", "tokens"},
                   .attributes = {"model", "pool", "normalize"},
                   .caution = ""},
                  arguments.overwrite ? Replace::yes : Replace::no);
}

void report(const EmbedArguments& arguments, const inference::EmbedSummary& summary,
            Log& log) {
  log.info("{}: {} of {}, of {}", arguments.options.out,
           format_plural(summary.texts, "vector"),
           format_plural(summary.columns, "number"),
           format_plural(summary.tokens, "token"));
  if (summary.blank_lines > 0) {
    log.info("  {} left out", format_plural(summary.blank_lines, "blank line"));
  }
  if (summary.cut > 0) {
    log.warning(
        "{} of {} longer than the model's {}, with [CLS] and [SEP]: what is behind them "
        "was not read",
        summary.cut, format_plural(summary.texts, "text is", "texts are"),
        format_plural(summary.sequence, "token"));
  }
  if (summary.replaced_sequences > 0) {
    log.warning(
        "{} replaced by U+FFFD: is the text in another encoding?",
        format_plural(summary.replaced_sequences, "byte sequence that is not UTF-8",
                      "byte sequences that are not UTF-8"));
  }
}

int run_embed(EmbedArguments arguments, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  const bool speaks = world.rank() == 0;
  Log log(speaks);
  inference::EmbedOptions& options = arguments.options;
  TRIREME_REQUIRE_INPUT(!arguments.text.empty() || !arguments.jsonl.empty(),
                        "no texts: name a file, --text FILE or --jsonl FILE");
  options.texts = arguments.jsonl.empty() ? arguments.text : arguments.jsonl;
  options.json_key = arguments.jsonl.empty() ? "" : arguments.key;
  options.pool = arguments.pool == "cls" ? inference::Pool::cls : inference::Pool::mean;
  comm::on_first_rank(world, [&] { check_output(arguments, log); });
  ProgressLine line(speaks);
  const auto show = [&](index_t done, index_t all) {
    if (!line.is_due()) return;
    const double rate = static_cast<double>(done) / line.seconds();
    line.show(fmt::format("{:3.0f} %  {:.0f} texts/s  {:.0f} s left",
                          100.0 * static_cast<double>(done) / static_cast<double>(all),
                          rate, static_cast<double>(all - done) / rate));
  };
  report(arguments, inference::embed(options, world, log, show), log);
  return 0;
}

}  // namespace

void add_embed(CommandLine& line) {
  const auto arguments = std::make_shared<EmbedArguments>();
  inference::EmbedOptions& options = arguments->options;
  CLI::App& command = line.add_command(
      "embed",
      "Vectors of texts, by a BERT. Under mpiexec the ranks share the texts; the file is "
      "the same.",
      [arguments](comm::Environment& environment) {
        return run_embed(*arguments, environment);
      });
  command
      .add_option("MODEL", options.checkpoint,
                  "a run directory, its checkpoints, one step_* directory or latest")
      ->required();
  CLI::Option* const text =
      command.add_option("--text", arguments->text, "a file with one text a line")
          ->type_name("FILE");
  CLI::Option* const jsonl =
      command
          .add_option("--jsonl", arguments->jsonl,
                      "a file with one JSON object a line, of which a string is the text")
          ->type_name("FILE")
          ->excludes(text);
  command.add_option("--key", arguments->key, "of that string, with --jsonl")
      ->capture_default_str()
      ->needs(jsonl);
  command
      .add_option("--pool", arguments->pool,
                  "what becomes a text's vector: the mean of its rows, or the row of "
                  "[CLS]")
      ->check(CLI::IsMember({"mean", "cls"}))
      ->capture_default_str();
  command.add_flag("--normalize", options.normalize, "vectors of length 1");
  command
      .add_option("--out", options.out,
                  "the HDF5 file to write: /embeddings, /offsets, /tokens")
      ->required();
  command.add_flag("--overwrite", arguments->overwrite,
                   "replace --out where it is vectors that embed has made");
  command
      .add_option(
          "--set", options.overrides,
          "precision.compute or precision.gemm in another way than the checkpoint's run "
          "had them (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace trireme::apps

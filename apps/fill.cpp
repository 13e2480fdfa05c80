// apps/fill.cpp — `trireme fill`: the most probable words for what is missing in a text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "comm/process_groups.hpp"
#include "inference/filling.hpp"
#include "inference/model_loader.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "model/blueprint.hpp"

namespace trireme::apps {
namespace {

using Json = nlohmann::ordered_json;

struct FillOptions {
  std::string checkpoint, json;
  std::vector<std::string> texts, overrides;
  std::optional<std::int64_t> top = {};
};

Json json_of(const std::string& text, const inference::FilledText& filled) {
  Json gaps = Json::array();
  for (const inference::FilledGap& gap : filled.gaps) {
    Json words = Json::array();
    for (const inference::Filling& filling : gap.fillings) {
      words.push_back({{"text", filling.text},
                       {"ids", filling.ids},
                       {"probability", filling.probability}});
    }
    gaps.push_back({{"position", gap.position}, {"words", words}, {"cut", gap.is_cut}});
  }
  Json json = {{"text", text}};
  if (filled.whole) json["filled"] = *filled.whole;
  json["gaps"] = gaps;
  return json;
}

void print(const std::string& text, const inference::FilledText& filled) {
  std::string shown = text + "\n";
  if (filled.whole) shown += *filled.whole + "\n";
  for (const inference::FilledGap& gap : filled.gaps) {
    if (filled.gaps.size() > 1) shown += fmt::format("  {}\n", gap.name);
    for (const inference::Filling& filling : gap.fillings) {
      shown += fmt::format("  {:8.4f}  {}\n", filling.probability,
                           filling.text.empty() ? "(nothing)" : filling.text);
    }
  }
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

void warn_of_cut_gaps(const std::vector<inference::FilledText>& filled, Log& log) {
  std::int64_t cut = 0, all = 0;
  for (const inference::FilledText& text : filled) {
    all += std::ssize(text.gaps);
    cut += std::ranges::count(text.gaps, true, &inference::FilledGap::is_cut);
  }
  if (cut == 0) return;
  log.warning(
      "the words for {} of {} are cut off: they took all the room that the model "
      "has for them (model.decoder_sequence, shared by the gaps of a text)",
      cut, format_plural(all, "gap"));
}

// A few words take no time worth sharing: rank 0 finds them.
int run_fill(const FillOptions& options, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  Log log(world.rank() == 0);
  comm::on_first_rank(world, [&] {
    require_output(options.json);
    const inference::LoadedModel model =
        inference::load_model(comm::make_groups_of_one(), options.checkpoint, log,
                              options.overrides, model::Use::words);
    const auto filler = inference::make_filler(model, options.top);
    std::vector<inference::FilledText> filled;
    for (const std::string& text : options.texts) filled.push_back(filler->fill(text));
    Json results = Json::array();
    for (std::size_t i = 0; i < filled.size(); ++i) {
      print((i > 0 ? "\n" : "") + options.texts[i], filled[i]);
      results.push_back(json_of(options.texts[i], filled[i]));
    }
    warn_of_cut_gaps(filled, log);
    if (options.json.empty()) return;
    const Json summary = {{"checkpoint", model.path.string()},
                          {"step", model.training.step},
                          {"top", filler->top()},
                          {"results", results}};
    io::write_file(options.json, io::json_text(summary, 2) + "\n");
  });
  return 0;
}

}  // namespace

void add_fill(CommandLine& line) {
  const auto options = std::make_shared<FillOptions>();
  CLI::App& command = line.add_command(
      "fill",
      "The most probable words for what is missing in a text: for each [MASK] by a BERT, "
      "for each <extra_id_0>, <extra_id_1> ... by a T5.",
      [options](comm::Environment& environment) {
        return run_fill(*options, environment);
      });
  command
      .add_option("MODEL", options->checkpoint,
                  "a run directory, its checkpoints, one step_* directory or latest")
      ->required();
  command
      .add_option(
          "--text", options->texts,
          "with [MASK] for each word that is to be found, \"the [MASK] of God\", or "
          "for a T5 with numbered sentinels, \"the <extra_id_0> of God\" "
          "(repeatable)")
      ->required()
      ->allow_extra_args(false);
  command
      .add_option("--top", options->top,
                  "words for each [MASK] [5]; a T5 writes one text for each sentinel")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31));
  command
      .add_option(
          "--set", options->overrides,
          "precision.compute or precision.gemm in another way than the checkpoint's run "
          "had them (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--json", options->json, "write the words to this file, too");
}

}  // namespace trireme::apps

// apps/fill.cpp — `trireme fill`: the most probable words for what is masked in a text.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/log.hpp"
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
  std::int64_t top = 5;
};

Json json_of(const std::string& text, const std::vector<inference::FilledMask>& masks) {
  Json list = Json::array();
  for (const inference::FilledMask& mask : masks) {
    Json words = Json::array();
    for (const inference::FilledWord& word : mask.words) {
      words.push_back(
          {{"word", word.text}, {"id", word.id}, {"probability", word.probability}});
    }
    list.push_back({{"position", mask.position}, {"words", words}});
  }
  return {{"text", text}, {"masks", list}};
}

void print(const std::string& text, const std::vector<inference::FilledMask>& masks) {
  std::string shown = text + "\n";
  for (std::size_t i = 0; i < masks.size(); ++i) {
    if (masks.size() > 1) shown += fmt::format("  mask {} of {}\n", i + 1, masks.size());
    for (const inference::FilledWord& word : masks[i].words) {
      shown += fmt::format("  {:8.4f}  {}\n", word.probability, word.text);
    }
  }
  std::fwrite(shown.data(), 1, shown.size(), stdout);
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
    inference::Filler filler(model);
    std::vector<std::vector<inference::FilledMask>> filled;
    for (const std::string& text : options.texts) {
      filled.push_back(filler.fill(text, options.top));
    }
    Json results = Json::array();
    for (std::size_t i = 0; i < filled.size(); ++i) {
      print((i > 0 ? "\n" : "") + options.texts[i], filled[i]);
      results.push_back(json_of(options.texts[i], filled[i]));
    }
    if (options.json.empty()) return;
    const Json summary = {{"checkpoint", model.path.string()},
                          {"step", model.training.step},
                          {"top", options.top},
                          {"results", results}};
    io::write_file(options.json, io::json_text(summary, 2) + "\n");
  });
  return 0;
}

}  // namespace

void add_fill(CommandLine& line) {
  const auto options = std::make_shared<FillOptions>();
  CLI::App& command = line.add_command(
      "fill", "The most probable words for what is masked in a text, by a BERT.",
      [options](comm::Environment& environment) {
        return run_fill(*options, environment);
      });
  command
      .add_option("MODEL", options->checkpoint,
                  "a run directory, its checkpoints, one step_* directory or latest")
      ->required();
  command
      .add_option("--text", options->texts,
                  "with [MASK] for each word that is to be found: \"the [MASK] of God\" "
                  "(repeatable)")
      ->required()
      ->allow_extra_args(false);
  command.add_option("--top", options->top, "words for each [MASK]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 31))
      ->capture_default_str();
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

// apps/inspect.cpp — `trireme inspect`: what a corpus, a checkpoint or a run holds, and
// whether it is whole. check/inspection.hpp finds out, inspection_text.cpp words it;
// samples of a corpus are of check/samples.hpp. Rank 0 alone looks and prints, and tells
// the others how it ended.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "check/inspection.hpp"
#include "check/samples.hpp"
#include "ckpt/verify.hpp"
#include "comm/on_ranks.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kDamaged = 2;

struct InspectOptions {
  std::string path;
  std::string json;
  bool verify = false, deck = false;
  std::int64_t show = 0;  // samples
  std::string model_deck;
  std::vector<std::string> overrides;
};

// What the system does not read may be whole.
int report(const Json& json) {
  std::fflush(stdout);
  const Json unreadable = json.value("unreadable", Json::array());
  for (const Json& problem : json["problems"]) {
    const bool is_read =
        std::find(unreadable.begin(), unreadable.end(), problem) == unreadable.end();
    fmt::print(stderr, "{}: {}\n", is_read ? "Damaged" : "Cannot be read",
               problem.get<std::string>());
  }
  return kDamaged;
}

// Null of a file that is damaged, which is said by who looks at all of it: of what is no
// corpus any more nobody can tell that it never was one. Files are not read for long
// before a wrong deck is refused.
Json samples_of(const InspectOptions& options) {
  const Json found =
      io::parse_json<Json>(check::inspect(options.path, ckpt::Depth::sizes));
  const bool is_run = found["kind"] == "run" || found["kind"] == "checkpoint";
  if (!is_run && !found["problems"].empty()) return nullptr;
  TRIREME_REQUIRE_INPUT(found["kind"] == "corpus",
                        "'{}' is not a corpus, and --show makes samples of one: {}",
                        options.path,
                        is_run ? "give a corpus (data.train of the run's deck), and "
                                 "--model-deck with that deck (deck.yaml of the run)"
                               : "`trireme tokenize` makes a corpus");
  return check::first_samples(options.path, options.show, options.model_deck,
                              options.overrides);
}

int inspect(const InspectOptions& options) {
  const Json samples = options.show > 0 ? samples_of(options) : nullptr;
  const auto depth = options.verify ? ckpt::Depth::checksums : ckpt::Depth::sizes;
  std::string text = check::inspect(options.path, depth);
  Json json = io::parse_json<Json>(text);
  if (!samples.is_null()) {
    json["samples"] = samples;
    text = io::json_text(json, 1) + "\n";
  }
  if (!options.json.empty()) io::write_file(options.json, text);
  const Json& problems = json["problems"];
  if (options.deck) {
    TRIREME_REQUIRE_INPUT(
        json.contains("deck"), "'{}' has no deck: {}", options.path,
        json.value("deck_problem", "expected a checkpoint or a run directory"));
    fmt::print("{}", json["deck"].get<std::string>());
    return problems.empty() ? 0 : report(json);
  }
  fmt::print("{}\n", check::inspection_text(json));
  if (!problems.empty()) return report(json);
  // A single HDF5 file of another kind carries no checksum to hold it against.
  if (!options.verify) {
    fmt::print(
        "  All files have their sizes; --verify reads them and checks their content.\n");
  } else if (json["kind"] == "hdf5") {
    fmt::print("  It can be read. Only corpora and checkpoints carry checksums.\n");
  } else if (json["kind"] == "corpus") {
    fmt::print("  Verified: all checksums hold.\n");
  } else {
    fmt::print("  Verified: all checksums hold, and all numbers are finite.\n");
  }
  if (!samples.is_null()) fmt::print("\n{}", check::samples_text(samples));
  return 0;
}

}  // namespace

void add_inspect(CommandLine& line) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App& command = line.add_command(
      "inspect",
      "Show what a corpus, a checkpoint or a run holds, and whether it is whole",
      [options](comm::Environment& environment) {
        const std::string status = comm::on_first_rank(*environment.world(), [&] {
          require_output(options->json, {options->path, options->model_deck});
          try {
            return std::to_string(inspect(*options));
          } catch (const std::system_error& error) {
            if (std::ferror(stdout) == 0) throw;  // not of fmt::print
            throw Error(
                fmt::format("cannot write the output to stdout: {}", error.what()));
          }
        });
        return std::stoi(status);
      });
  command
      .add_option("path", options->path,
                  "corpus (.h5), checkpoint (step_*, latest), or run directory")
      ->required();
  command.add_flag("--verify", options->verify,
                   "read everything and check its checksums; status 2 where one fails");
  CLI::Option* const deck =
      command.add_flag("--deck", options->deck,
                       "print the deck of a checkpoint or a run, and nothing else");
  CLI::Option* const show =
      command
          .add_option("--show", options->show,
                      "of a corpus also the first N samples of training on it, as the "
                      "model sees them: a GPT of 64 positions, or that of --model-deck")
          ->type_name("N")
          ->check(CLI::Range(1, 1 << 20))
          ->excludes(deck);
  CLI::Option* const model_deck =
      command
          .add_option("--model-deck", options->model_deck,
                      "the deck by whose rules samples are made; of a run: its deck.yaml")
          ->type_name("DECK")
          ->needs(show);
  command
      .add_option("--set", options->overrides,
                  "change a key of that deck, e.g. data.pack=true; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(model_deck);
  command.add_option("--json", options->json, "also write what is shown to this file");
}

}  // namespace trireme::apps

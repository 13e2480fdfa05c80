// apps/convert.cpp — `trireme convert`: between the formats of others and ours; what IN
// is says which way.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "ckpt/convert.hpp"
#include "ckpt/hugging_face.hpp"
#include "engine/first_rank.hpp"
#include "io/files.hpp"

namespace trireme::apps {
namespace {

struct ConvertOptions {
  std::string in, out, json;
  bool weights_only = false;
};

void report_model(const ckpt::Converted& made, const char* direction,
                  const ConvertOptions& options, Log& log) {
  log.info("{}: {} parameters in {} tensors, {}", made.to.string(), made.parameters,
           made.tensors,
           made.has_tokenizer ? "with the tokenizer" : "without a tokenizer");
  if (made.drops_optimizer && !options.weights_only) {
    log.info(
        "  optimizer state stays behind: a Hugging Face directory holds weights only "
        "(--weights-only says that you know)");
  }
  if (options.json.empty()) return;
  nlohmann::ordered_json json;
  json["direction"] = direction;
  json["in"] = made.from.string();
  json["out"] = made.to.string();
  json["step"] = made.step;
  json["parameters"] = made.parameters;
  json["tensors"] = made.tensors;
  json["tokenizer"] = made.has_tokenizer;
  json["optimizer_dropped"] = made.drops_optimizer;
  json["warnings"] = log.warnings();
  io::write_file(options.json, json.dump(2) + "\n");
}

void convert(const ConvertOptions& options) {
  Log log;
  if (ckpt::is_hugging_face_directory(options.in)) {
    report_model(ckpt::import_hugging_face(options.in, options.out, log),
                 "hugging_face_to_checkpoint", options, log);
    return;
  }
  TRIREME_REQUIRE_INPUT(std::filesystem::exists(options.in),
                        "'{}' does not exist: expected a Hugging Face directory (with "
                        "config.json), a checkpoint or run directory",
                        options.in);
  TRIREME_REQUIRE_INPUT(std::filesystem::is_directory(options.in),
                        "'{}' is nothing that can be converted: expected a Hugging Face "
                        "directory (with config.json), a checkpoint or run directory",
                        options.in);
  report_model(ckpt::export_hugging_face(options.in, options.out, log),
               "checkpoint_to_hugging_face", options, log);
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = app.add_subcommand(
      "convert",
      "A Hugging Face GPT-2 directory to a checkpoint, or a checkpoint to a Hugging Face "
      "directory: what IN is says which.");
  command
      ->add_option(
          "IN", options->in,
          "a directory with config.json; or a run directory, its checkpoints, one "
          "step_* directory or latest")
      ->required();
  command->add_option("OUT", options->out, "a directory that does not exist yet")
      ->required();
  command->add_flag("--weights-only", options->weights_only,
                    "weights are all that is wanted: say nothing about optimizer state, "
                    "which is never converted");
  command->add_option("--json", options->json, "write what was made to this file too");
  command->callback([options, &action] {
    action = [options](comm::Environment& environment) {
      engine::on_first_rank(*environment.world(), [&] {
        convert(*options);
        return std::string();
      });
      return 0;
    };
  });
}

}  // namespace trireme::apps

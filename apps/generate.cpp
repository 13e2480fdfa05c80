// apps/generate.cpp — `trireme generate`: text from a checkpoint.
//
// One text at a time is shown as it comes. Several continuations, or output for programs,
// are made side by side; under mpiexec the prompts are divided among the ranks. The texts
// are the same either way.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "comm/process_groups.hpp"
#include "data/tokenizer.hpp"
#include "inference/generation.hpp"
#include "inference/model_loader.hpp"
#include "inference/prompts.hpp"
#include "inference/texts.hpp"
#include "io/files.hpp"
#include "io/json.hpp"
#include "model/blueprint.hpp"

namespace trireme::apps {
namespace {

using Json = nlohmann::ordered_json;

struct GenerateOptions {
  std::string checkpoint;
  inference::PromptSources prompts;
  std::string format = "text";
  std::string out, json;
  std::int64_t samples = 1;
  bool greedy = false, slide = false;
  std::vector<std::string> overrides;
  inference::GenerationConfig config;
};

// What is to be generated, and how it is shown.
struct Work {
  const GenerateOptions& options;
  const std::optional<data::Tokenizer>& tokenizer;
  std::vector<inference::Prompt> prompts;
  std::vector<inference::GenerationRequest> requests;
  // Texts are made from prompts, and do not continue them: they begin lines of their own.
  bool is_answered = false;

  const inference::Prompt& prompt_of(const inference::GenerationRequest& request) const {
    return prompts[request.number];
  }
  // What stands before a text: which one it is where there are several, and its prompt,
  // without a blank between prompt and continuation where both are text.
  std::string head(const inference::GenerationRequest& request) const {
    std::string text;
    if (requests.size() > 1) {
      text = fmt::format("--- prompt {}", request.number + 1);
      if (options.samples > 1) text += fmt::format(", sample {}", request.sample + 1);
      text += " ---\n";
    }
    const inference::Prompt& prompt = prompt_of(request);
    if (is_answered) {
      return text + (tokenizer ? prompt.text : inference::spell(tokenizer, prompt.ids)) +
             "\n";
    }
    if (tokenizer || prompt.ids.empty()) return text + prompt.text;
    return text + inference::spell(tokenizer, prompt.ids) + " ";
  }
};

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// One text after the other, as it comes.
Json generate_streaming(const Work& work, inference::Generator& generator) {
  Json results = Json::array();
  for (const inference::GenerationRequest& request : work.requests) {
    print((results.empty() ? "" : "\n") + work.head(request));
    inference::Speller speller(work.tokenizer);
    const auto texts =
        generator.run({request}, work.options.config,
                      [&](std::size_t, data::TokenId id) { print(speller.next(id)); });
    print(speller.finish() + "\n");
    results.push_back(
        inference::result_of(work.tokenizer, work.prompt_of(request), request, texts[0]));
  }
  return results;
}

void write_texts(const Work& work, const Json& results) {
  const GenerateOptions& options = work.options;
  std::string text;
  for (std::size_t i = 0; i < work.requests.size(); ++i) {
    if (options.format == "jsonl") {
      text += io::json_text(results[i]) + "\n";
    } else {
      text += (i > 0 ? "\n" : "") + work.head(work.requests[i]) +
              results[i]["text"].get<std::string>() + "\n";
    }
  }
  if (options.out.empty()) {
    print(text);
  } else {
    io::write_file(options.out, text);
  }
}

void report(const inference::GenerationSpeed& speed, const Json& results, bool can_slide,
            Log& log) {
  const auto at_limit = std::count_if(results.begin(), results.end(), [](const Json& r) {
    return r["finish"] == inference::name_of(inference::FinishReason::context_limit);
  });
  if (at_limit > 0) {
    log.warning("{} of {} ended because the model's context was full{}", at_limit,
                format_plural(results.size(), "text"),
                can_slide ? " (--slide goes on with the newer half of it)" : "");
  }
  const double rate =
      static_cast<double>(speed.new_tokens) / std::max(speed.seconds, 1e-9);
  std::fprintf(
      stderr, "%s\n",
      fmt::format("{} in {:.2f} s: {:.1f} tokens/s (prompts: {} in {:.2f} s)",
                  format_plural(speed.new_tokens, "token"), speed.seconds, rate,
                  format_plural(speed.prompt_tokens, "token"), speed.prompt_seconds)
          .c_str());
}

// What is wrong with the options is found before a checkpoint is read.
void check_options(GenerateOptions& options, comm::Communicator& world) {
  comm::on_first_rank(world, [&] {
    require_apart({{"--out", options.out}, {"--json", options.json}});
    require_output(options.out, {options.prompts.file});
    require_output(options.json, {options.prompts.file});
  });
  inference::SamplingConfig& sampling = options.config.sampling;
  if (options.greedy) sampling.temperature = 0.0;
  if (options.slide) options.config.at_limit = inference::AtContextLimit::slide;
  sampling.validate();
  TRIREME_REQUIRE_INPUT(
      (sampling.temperature > 0.0 && sampling.top_k != 1) || options.samples == 1,
      "--num-samples {}: always taking the most probable token (--greedy, --temperature "
      "0, --top-k 1) gives one text of each prompt, and not several; leave out one of "
      "the "
      "two",
      options.samples);
}

void warn_of_long_prompts(const Work& work, index_t context, Log& log) {
  for (std::size_t i = 0; i < work.prompts.size(); ++i) {
    const index_t length = std::ssize(work.prompts[i].ids);
    if (length <= context) continue;
    log.warning("prompt {} has {}, and the model's context {}: the first {} are not read",
                i + 1, format_plural(length, "token"), context, length - context);
  }
}

int run_generate(GenerateOptions options, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  Log log(world.rank() == 0);
  check_options(options, world);

  // 1. The model, whole on every rank; the prompts, checked before anything is computed.
  const inference::LoadedModel model =
      inference::load_model(comm::make_groups_of_one(), options.checkpoint, log,
                            options.overrides, model::Use::text);
  options.config.end_of_document = model.end_of_document;
  options.config.usable_vocabulary = model.usable_vocabulary();
  const model::DecodedFields& decoded = model.replica->part().blueprint.decoded;
  Work work{
      options,
      model.tokenizer,
      inference::read_prompts(options.prompts, model.tokenizer, model.path.string()),
      {},
      decoded.has_source()};
  work.requests = inference::make_requests(work.prompts, options.samples, decoded,
                                           model.end_of_document, model.first_word);
  const bool streams = options.format != "jsonl" && options.out.empty() &&
                       world.size() == 1 && options.samples == 1;
  inference::Generator generator(model.replica->make_decoder(
      streams ? 1
              : inference::texts_at_once(model.replica->plan_decoder(),
                                         work.requests.size())));
  generator.check(work.requests, options.config);
  if (!decoded.has_source()) warn_of_long_prompts(work, generator.context(), log);

  // 2. The texts.
  const Json results =
      streams ? generate_streaming(work, generator)
              : inference::generate_on_ranks(world, work.tokenizer, work.prompts,
                                             work.requests, [&](const auto& mine) {
                                               return generator.run(mine, options.config);
                                             });
  const inference::GenerationSpeed speed = inference::total(generator.speed(), world);

  // 3. Where they go.
  if (world.rank() != 0) return 0;
  if (!streams) write_texts(work, results);
  if (!options.json.empty()) {
    Json summary = {{"checkpoint", model.path.string()}, {"step", model.training.step}};
    summary.update(inference::summary_of(options.config, speed));
    summary["results"] = results;
    io::write_file(options.json, io::json_text(summary, 2) + "\n");
  }
  report(speed, results, !decoded.has_source(), log);
  return 0;
}

// What is continued, by which model.
void add_input_options(CLI::App& command,
                       const std::shared_ptr<GenerateOptions>& options) {
  command
      .add_option("--checkpoint", options->checkpoint,
                  "a run directory, its checkpoints, one step_* directory or latest")
      ->required();
  command
      .add_option("--prompt", options->prompts.texts,
                  "text to continue, or for an encoder and decoder to make another of; "
                  "may be given several times. Without any prompt the text begins a "
                  "document")
      ->type_name("TEXT ...");
  command.add_option("--prompt-file", options->prompts.file,
                     "one prompt a line; .jsonl: \"prompt\" (text) or \"ids\" of each");
  command
      .add_option("--prompt-ids", options->prompts.ids,
                  "a prompt as token numbers, \"464 3290\"; may be given several times")
      ->allow_extra_args(false);
  command
      .add_option(
          "--set", options->overrides,
          "precision.compute or precision.gemm in another way than the checkpoint's run "
          "had them: precision.compute=bf16 (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

}  // namespace

void add_generate(CommandLine& line) {
  const auto options = std::make_shared<GenerateOptions>();
  inference::GenerationConfig& config = options->config;
  inference::SamplingConfig& sampling = config.sampling;
  CLI::App& command = line.add_command("generate",
                                       "Continue prompts with a trained model. Under "
                                       "mpiexec the prompts are divided among "
                                       "the ranks.",
                                       [options](comm::Environment& environment) {
                                         return run_generate(*options, environment);
                                       });
  add_input_options(command, options);
  command.add_option("--max-tokens", config.max_tokens, "new tokens of a text at most")
      ->capture_default_str();
  command
      .add_option("--temperature", sampling.temperature,
                  "below 1 more probable texts, above 1 more varied ones; 0 is greedy")
      ->capture_default_str();
  command
      .add_option("--top-k", sampling.top_k,
                  "draw from the K most probable tokens; 0: all")
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "draw from the most probable tokens that together have this "
                  "probability")
      ->capture_default_str();
  command.add_flag("--greedy", options->greedy, "always the most probable token");
  add_unsigned(command, "--seed", sampling.seed, "of the draws")->capture_default_str();
  command.add_option("--num-samples", options->samples, "continuations of each prompt")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  command.add_flag("--slide", options->slide,
                   "when the context is full, forget its older half and go on; else the "
                   "text ends there. Of a longer prompt, the last tokens are read");
  command.add_option("--format", options->format, "text, or one JSON object a line")
      ->check(CLI::IsMember({"text", "jsonl"}))
      ->capture_default_str();
  command.add_option("--out", options->out, "write the texts to this file");
  command.add_option("--json", options->json,
                     "write texts and settings to this file too, as one JSON object");
}

}  // namespace trireme::apps

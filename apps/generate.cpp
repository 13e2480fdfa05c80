// apps/generate.cpp — `trireme generate`: text from a checkpoint.
//
// One text at a time is shown as it comes. Several continuations, or output for programs,
// are made side by side; under mpiexec the prompts are divided among the ranks. The texts
// are the same either way.
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/subcommands.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "comm/environment.hpp"
#include "comm/on_ranks.hpp"
#include "comm/self_communicator.hpp"
#include "inference/generation.hpp"
#include "inference/model_loader.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::apps {
namespace {

using Json = nlohmann::ordered_json;
using Model = inference::LoadedModel<float>;
using Generator = inference::Generator<float>;

struct GenerateOptions {
  std::string checkpoint;
  std::vector<std::string> prompts;
  std::string prompt_file;
  std::vector<std::string> prompt_ids;
  std::string format = "text";
  std::string out, json;
  std::int64_t samples = 1;
  bool greedy = false, slide = false;
  inference::GenerationConfig config;
};

// What is to be continued: text, or token ids where there is no tokenizer.
struct Prompt {
  std::string text;
  std::vector<data::TokenId> ids;
  bool is_text = true;
};

// "15496 11 995" or "15496,11,995"
std::vector<data::TokenId> parse_ids(const std::string& text) {
  std::vector<data::TokenId> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    data::TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    TRIREME_REQUIRE_INPUT(error == std::errc{},
                          "--prompt-ids '{}': expected token numbers, found '{}'", text,
                          std::string(at, end));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

// One prompt a line; of a .jsonl file the string "prompt" or the list "ids" of each line.
void read_prompt_file(const std::string& path, std::vector<Prompt>& prompts) {
  const std::string content = io::read_file(path, "prompt file");
  const bool is_json = path.ends_with(".jsonl");
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (!is_json) {
      prompts.push_back({.text = line, .ids = {}});
      continue;
    }
    Json object;
    try {
      object = io::parse_json<Json>(line);
    } catch (const io::JsonError& error) {
      throw InputError(error.in_file(path, static_cast<std::int64_t>(line_number)));
    }
    const auto has = [&](const char* key) {
      return object.is_object() && object.contains(key);
    };
    if (has("prompt") && object["prompt"].is_string()) {
      prompts.push_back({.text = object["prompt"], .ids = {}});
    } else if (has("ids") && object["ids"].is_array() &&
               std::all_of(
                   object["ids"].begin(), object["ids"].end(), [](const Json& id) {
                     constexpr auto kMost = std::numeric_limits<data::TokenId>::max();
                     return id.is_number_unsigned() && id.get<std::uint64_t>() <= kMost;
                   })) {
      prompts.push_back({.text = {}, .ids = object["ids"], .is_text = false});
    } else {
      throw InputError(fmt::format(
          "{}:{}: expected an object with a string \"prompt\" or a list of token "
          "numbers \"ids\"",
          path, line_number));
    }
  }
  TRIREME_REQUIRE_INPUT(!prompts.empty(), "prompt file '{}' has no prompt", path);
}

std::vector<Prompt> read_prompts(const GenerateOptions& options, const Model& model) {
  std::vector<Prompt> prompts;
  for (const std::string& text : options.prompts) prompts.push_back({text, {}});
  for (const std::string& ids : options.prompt_ids) {
    prompts.push_back({.text = {}, .ids = parse_ids(ids), .is_text = false});
  }
  if (!options.prompt_file.empty()) read_prompt_file(options.prompt_file, prompts);
  if (prompts.empty()) prompts.emplace_back();  // a document's beginning
  for (Prompt& prompt : prompts) {
    if (prompt.is_text && !prompt.text.empty()) {
      TRIREME_REQUIRE_INPUT(model.tokenizer.has_value(),
                            "checkpoint '{}' has no tokenizer, so text cannot be read: "
                            "give the prompt as token numbers, --prompt-ids \"464 3290\"",
                            model.path.string());
      prompt.ids = model.tokenizer->encode(prompt.text);
    } else if (!prompt.is_text && model.tokenizer) {
      std::vector<data::TokenId> known = prompt.ids;
      std::erase_if(known,
                    [&](auto id) { return id >= model.tokenizer->vocabulary_size(); });
      append_repaired(model.tokenizer->decode(known), prompt.text);
    }
  }
  return prompts;
}

std::vector<inference::GenerationRequest> make_requests(
    const std::vector<Prompt>& prompts, std::int64_t samples) {
  std::vector<inference::GenerationRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      requests.push_back({prompts[i].ids, i, static_cast<std::uint64_t>(sample)});
    }
  }
  return requests;
}

// Tokens as text: whole characters, or numbers where there is no tokenizer.
class Speller {
 public:
  explicit Speller(const Model& model) {
    if (model.tokenizer) decoder_.emplace(*model.tokenizer);
  }
  std::string next(data::TokenId id) {
    if (decoder_) return decoder_->next(id);
    return std::exchange(separator_, " ") + std::to_string(id);
  }
  std::string finish() { return decoder_ ? decoder_->finish() : ""; }

 private:
  std::optional<data::StreamDecoder> decoder_;
  std::string separator_;
};

std::string spell(const Model& model, const std::vector<data::TokenId>& ids) {
  Speller speller(model);
  std::string text;
  for (const data::TokenId id : ids) text += speller.next(id);
  return text + speller.finish();
}

std::string repaired(const std::string& text) {
  std::string valid;
  append_repaired(text, valid);
  return valid;
}

Json result_of(const Model& model, const Prompt& prompt,
               const inference::GenerationRequest& request,
               const inference::Generation& generation) {
  return {{"prompt_number", request.number},
          {"sample", request.sample},
          {"prompt", repaired(prompt.text)},
          {"prompt_ids", request.prompt},
          {"text", spell(model, generation.tokens)},
          {"ids", generation.tokens},
          {"finish", inference::name_of(generation.finish)},
          {"slides", generation.slides},
          {"prompt_tokens_unread", generation.unread}};
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string heading(const inference::GenerationRequest& request, std::size_t prompts,
                    std::int64_t samples) {
  if (prompts == 1 && samples == 1) return "";
  std::string text = fmt::format("--- prompt {}", request.number + 1);
  if (samples > 1) text += fmt::format(", sample {}", request.sample + 1);
  return text + " ---\n";
}

// What there is between prompt and continuation: nothing where both are text.
std::string shown_prompt(const Model& model, const Prompt& prompt) {
  if (model.tokenizer || prompt.ids.empty()) return prompt.text;
  return spell(model, prompt.ids) + " ";
}

// One text after the other, as it comes.
Json generate_streaming(const Model& model, Generator& generator,
                        const std::vector<Prompt>& prompts,
                        const std::vector<inference::GenerationRequest>& requests,
                        const GenerateOptions& options) {
  Json results = Json::array();
  for (const inference::GenerationRequest& request : requests) {
    const Prompt& prompt = prompts[request.number];
    if (!results.empty()) print("\n");
    print(heading(request, prompts.size(), options.samples) +
          shown_prompt(model, prompt));
    Speller speller(model);
    const auto texts =
        generator.run({request}, options.config,
                      [&](std::size_t, data::TokenId id) { print(speller.next(id)); });
    print(speller.finish() + "\n");
    results.push_back(result_of(model, prompt, request, texts[0]));
  }
  return results;
}

// All texts of this rank side by side, and then those of all ranks, in order.
Json generate_together(const Model& model, Generator& generator,
                       const std::vector<Prompt>& prompts,
                       const std::vector<inference::GenerationRequest>& requests,
                       const GenerateOptions& options, comm::Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<inference::GenerationRequest> mine;
  for (std::size_t i = static_cast<std::size_t>(world.rank()); i < requests.size();
       i += ranks) {
    mine.push_back(requests[i]);
  }
  Json own = Json::array();
  comm::on_every_rank(world, [&] {
    const auto texts = generator.run(mine, options.config);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      own.push_back(result_of(model, prompts[mine[i].number], mine[i], texts[i]));
    }
  });
  const std::vector<std::string> parts = world.gather(io::json_text(own));
  std::vector<Json> lists;
  for (const std::string& part : parts) lists.push_back(io::parse_json<Json>(part));
  Json results = Json::array();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    results.push_back(std::move(lists[i % ranks][i / ranks]));
  }
  return results;
}

std::string as_text(const Model& model, const Json& results,
                    const std::vector<Prompt>& prompts,
                    const std::vector<inference::GenerationRequest>& requests,
                    const GenerateOptions& options) {
  std::string text;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i > 0) text += "\n";
    text += heading(requests[i], prompts.size(), options.samples) +
            shown_prompt(model, prompts[requests[i].number]) +
            results[i]["text"].get<std::string>() + "\n";
  }
  return text;
}

void report(const inference::GenerationSpeed& speed, const Json& results, Log& log) {
  std::size_t at_limit = 0;
  for (const Json& result : results) {
    if (result["finish"] == inference::name_of(inference::FinishReason::context_limit)) {
      ++at_limit;
    }
  }
  if (at_limit > 0) {
    log.warning(
        "{} of {} ended because the model's context was full (--slide goes on with the "
        "newer half of it)",
        at_limit, format_plural(results.size(), "text"));
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

// Of all ranks: tokens added up, the time of the slowest.
inference::GenerationSpeed total(const inference::GenerationSpeed& own,
                                 comm::Communicator& world) {
  return {world.all_reduce(own.prompt_tokens), world.all_reduce(own.new_tokens),
          world.all_reduce(own.prompt_seconds, comm::Op::max),
          world.all_reduce(own.seconds, comm::Op::max)};
}

Json summary_of(const Model& model, const GenerateOptions& options,
                const inference::GenerationSpeed& speed, const Json& results) {
  const inference::SamplingConfig& sampling = options.config.sampling;
  return {{"checkpoint", model.path.string()},
          {"step", model.training.step},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"seed", sampling.seed},
          {"max_tokens", options.config.max_tokens},
          {"prompt_tokens", speed.prompt_tokens},
          {"new_tokens", speed.new_tokens},
          {"seconds", speed.seconds},
          {"results", results}};
}

int run_generate(GenerateOptions options, comm::Environment& environment) {
  comm::Communicator& world = *environment.world();
  const bool speaks = world.rank() == 0;
  Log log(speaks);

  for (const std::string& file : {options.out, options.json}) {
    if (file.empty()) continue;
    comm::on_first_rank(world, [&] { require_output(file, {options.prompt_file}); });
  }

  // 1. The model, whole on every rank; the prompts, checked before anything is computed.
  const auto self = comm::make_self_communicator("generate");
  const comm::ProcessGroups groups{self, self, self, self, self, self, self};
  const Exec exec;
  if (options.greedy) options.config.sampling.temperature = 0.0;
  if (options.slide) options.config.at_limit = inference::AtContextLimit::slide;
  options.config.sampling.validate();
  const bool draws =
      options.config.sampling.temperature > 0.0 && options.config.sampling.top_k != 1;
  TRIREME_REQUIRE_INPUT(draws || options.samples == 1,
                        "--num-samples {}: always taking the most probable token "
                        "(--greedy, --temperature 0, --top-k 1) gives one text of each "
                        "prompt, and not several; leave out one of the two",
                        options.samples);
  const auto model = inference::load_model<float>(exec, groups, options.checkpoint, log);
  options.config.end_of_document = model->end_of_document;
  options.config.usable_vocabulary = model->usable_vocabulary();
  const std::vector<Prompt> prompts = read_prompts(options, *model);
  const auto requests = make_requests(prompts, options.samples);
  const bool as_json = options.format == "jsonl";
  const bool streams =
      !as_json && options.out.empty() && world.size() == 1 && options.samples == 1;
  Generator generator(exec, model->state,
                      streams ? 1 : Generator::batch_for(model->state, requests.size()));
  generator.check(requests, options.config);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const index_t length = std::ssize(prompts[i].ids);
    if (length <= generator.context()) continue;
    log.warning("prompt {} has {}, and the model's context {}: the first {} are not read",
                i + 1, format_plural(length, "token"), generator.context(),
                length - generator.context());
  }

  // 2. The texts.
  const Json results =
      streams ? generate_streaming(*model, generator, prompts, requests, options)
              : generate_together(*model, generator, prompts, requests, options, world);
  const inference::GenerationSpeed speed = total(generator.speed(), world);

  // 3. Where they go.
  if (!speaks) return 0;
  if (!streams) {
    std::string text;
    if (as_json) {
      for (const Json& result : results) text += io::json_text(result) + "\n";
    } else {
      text = as_text(*model, results, prompts, requests, options);
    }
    if (options.out.empty()) {
      print(text);
    } else {
      io::write_file(options.out, text);
    }
  }
  if (!options.json.empty()) {
    io::write_file(options.json,
                   io::json_text(summary_of(*model, options, speed, results), 2) + "\n");
  }
  report(speed, results, log);
  return 0;
}

}  // namespace

void add_generate(CommandLine& line) {
  const auto options = std::make_shared<GenerateOptions>();
  inference::GenerationConfig& config = options->config;
  inference::SamplingConfig& sampling = config.sampling;
  Command command = line.add_command("generate",
                                     "Continue prompts with a trained model. Under "
                                     "mpiexec the prompts are divided among "
                                     "the ranks.");
  command
      .add("--checkpoint", options->checkpoint,
           "a run directory, its checkpoints, one step_* directory or latest")
      .required();
  command
      .add("--prompt", options->prompts,
           "text to continue; may be given several times. Without any prompt the "
           "text begins a document")
      .placeholder("TEXT ...");
  command.add("--prompt-file", options->prompt_file,
              "one prompt a line; .jsonl: \"prompt\" (text) or \"ids\" of each");
  command
      .add("--prompt-ids", options->prompt_ids,
           "a prompt as token numbers, \"464 3290\"; may be given several times")
      .one_each();
  command.add("--max-tokens", config.max_tokens, "new tokens of a text at most")
      .show_default();
  command
      .add("--temperature", sampling.temperature,
           "below 1 more probable texts, above 1 more varied ones; 0 is greedy")
      .show_default();
  command.add("--top-k", sampling.top_k, "draw from the K most probable tokens; 0: all")
      .show_default();
  command
      .add("--top-p", sampling.top_p,
           "draw from the most probable tokens that together have this "
           "probability")
      .show_default();
  command.add_flag("--greedy", options->greedy, "always the most probable token");
  command.add("--seed", sampling.seed, "of the draws").show_default();
  command.add("--num-samples", options->samples, "continuations of each prompt")
      .between(1, 65535)
      .show_default();
  command.add_flag("--slide", options->slide,
                   "when the context is full, forget its older half and go on; else the "
                   "text ends there. Of a longer prompt, the last tokens are read");
  command.add("--format", options->format, "text, or one JSON object a line")
      .one_of({"text", "jsonl"})
      .show_default();
  command.add("--out", options->out, "write the texts to this file");
  command.add("--json", options->json,
              "write texts and settings to this file too, as one JSON object");
  command.does([options](comm::Environment& environment) {
    return run_generate(*options, environment);
  });
}

}  // namespace trireme::apps

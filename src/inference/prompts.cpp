// inference/prompts.cpp — see prompts.hpp.
#include "inference/prompts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "base/words.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::inference {

namespace {

using Json = nlohmann::ordered_json;

std::vector<data::TokenId> parse_ids(const std::string& text) {
  std::vector<data::TokenId> ids;
  std::string words = text;
  std::ranges::replace(words, ',', ' ');
  for (const std::string_view word : split(words, " ")) {
    if (word.empty()) continue;
    const auto id = number_in<data::TokenId>(word);
    TRIREME_REQUIRE_INPUT(id, "--prompt-ids '{}': expected token numbers, found '{}'",
                          text, word);
    ids.push_back(*id);
  }
  return ids;
}

void read_prompt_file(const std::string& path, std::vector<Prompt>& prompts) {
  const std::string content = io::read_file(path, "prompt file");
  const bool is_json = path.ends_with(".jsonl");
  std::size_t line_number = 0;
  for (std::string_view line : lines_of(content)) {
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!is_json) {
      prompts.push_back({.text = std::string(line), .ids = {}});
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
               std::ranges::all_of(object["ids"], [](const Json& id) {
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

}  // namespace

std::vector<Prompt> read_prompts(const PromptSources& sources,
                                 const std::optional<data::Tokenizer>& tokenizer,
                                 const std::string& model) {
  std::vector<Prompt> prompts;
  for (const std::string& text : sources.texts) prompts.push_back({text, {}});
  for (const std::string& ids : sources.ids) {
    prompts.push_back({.text = {}, .ids = parse_ids(ids), .is_text = false});
  }
  if (!sources.file.empty()) read_prompt_file(sources.file, prompts);
  if (prompts.empty()) prompts.emplace_back();  // a document's beginning
  for (Prompt& prompt : prompts) {
    if (prompt.is_text && !prompt.text.empty()) {
      TRIREME_REQUIRE_INPUT(tokenizer.has_value(),
                            "checkpoint '{}' has no tokenizer, so text cannot be read: "
                            "give the prompt as token numbers, --prompt-ids \"464 3290\"",
                            model);
      prompt.ids = tokenizer->encode(prompt.text);
    } else if (!prompt.is_text && tokenizer) {
      std::vector<data::TokenId> known = prompt.ids;
      std::erase_if(known, [&](auto id) { return id >= tokenizer->vocabulary_size(); });
      append_repaired(tokenizer->decode(known), prompt.text);
    }
  }
  return prompts;
}

}  // namespace trireme::inference

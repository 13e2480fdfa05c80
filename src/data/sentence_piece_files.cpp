// data/sentence_piece_files.cpp — see sentence_piece_files.hpp; tokenizer.json is read in
// sentence_piece_json.cpp.
//
// A model has no sentinels: T5 gives them the ids behind its pieces, <extra_id_0> the
// last one. How many there are stands in tokenizer_config.json: as "extra_ids", in the
// list of "additional_special_tokens", by id in "added_tokens_decoder", or, in a T5's,
// nowhere, which means 100. What else it says of tokens is compared with the model, so
// that a file of another one is found out.
#include "data/sentence_piece_files.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "data/sentence_piece.hpp"
#include "data/tokenizer_files.hpp"
#include "data/tokenizer_values.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostSentinels = 100'000;

[[noreturn]] void refuse_config(const std::string& what, const std::string& fix) {
  throw InputError(
      fmt::format("tokenizer file '{}': {}. {}", kTokenizerConfig, what, fix));
}

// A token is its text, or an object with that.
std::string token_text(const Json& entry) {
  if (entry.is_string()) return entry.get<std::string>();
  return entry.is_object() ? value_or<std::string>(entry, "content", "") : std::string();
}

std::optional<std::int64_t> count_of_config(const Json& config) {
  if (config.contains("extra_ids") && !config["extra_ids"].is_null()) {
    const auto count = io::json_value<std::int64_t>(config, "extra_ids");
    if (count < 0 || count > kMostSentinels) {
      refuse_config(fmt::format("extra_ids is {}", count),
                    fmt::format("It is from 0 to {}", kMostSentinels));
    }
    return count;
  }
  const Json listed = value_or(config, "additional_special_tokens", Json::array());
  const auto sentinels = std::ranges::count_if(listed, [](const Json& entry) {
    return token_text(entry).starts_with(kSentinelBegin);
  });
  if (sentinels > 0) return sentinels;
  const auto name = value_or<std::string>(config, "tokenizer_class", "");
  if (name == "T5Tokenizer" || name == "T5TokenizerFast") return 100;
  return std::nullopt;
}

// Classes of transformers that change the text before the model has it, or its ids after.
constexpr std::array<std::string_view, 20> kOtherClasses = {
    "Albert",      "Barthez",     "Bartpho", "Camembert",  "Cpm",
    "Deberta",     "ErnieM",      "FNet",    "LayoutXLM",  "M2M100",
    "MBart",       "MLuke",       "Nllb",    "PLBart",     "Pegasus",
    "SeamlessM4T", "Speech2Text", "XGLM",    "XLMRoberta", "XLNet"};

// Those that read another kind of tokenizer. Whole names, as the BertGenerationTokenizer
// does read models.
constexpr std::array<std::string_view, 7> kClassesOfOtherKinds = {
    "BertTokenizer",    "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer",
    "RobertaTokenizer", "GPT2Tokenizer",       "GPTNeoXTokenizer"};

void require_own_ids(const Json& config) {
  const auto name = value_or<std::string>(config, "tokenizer_class", "");
  const auto begins = [&](std::string_view other) { return name.starts_with(other); };
  if (std::ranges::any_of(kOtherClasses, begins)) {
    refuse_config(fmt::format("tokenizer_class {} has ids or texts other than the "
                              "model's",
                              name),
                  "Make a tokenizer.json of it, which says what it does, or use the "
                  "model without this file");
  }
  if (std::ranges::any_of(kClassesOfOtherKinds, begins)) {
    refuse_config(
        fmt::format("tokenizer_class is {}, which reads no model of SentencePiece", name),
        "They are of two tokenizers: give the files of one");
  }
  if (value_or(config, "do_lower_case", false)) {
    refuse_config("do_lower_case is true",
                  "Train a model on text in lower case instead, or use the model without "
                  "this file");
  }
}

// Ids below the model's size name its pieces, those above are tokens added to it.
void take_decoder(const SentencePieceModel& model, const Json& decoder,
                  std::vector<AddedToken>& added) {
  for (const auto& [key, entry] : decoder.items()) {
    const std::string text = token_text(entry);
    const auto number = number_in<std::uint32_t>(key);
    if (!number || text.empty()) {
      refuse_config(fmt::format("added_tokens_decoder has no id and text at '{}'", key),
                    "Copy the file again");
    }
    const TokenId id = checked_id(kTokenizerConfig, text, Json(*number));
    if (id < model.pieces.size()) {
      if (model.pieces[id].text != text) {
        refuse_config(fmt::format("token {} is '{}', and piece {} of the model is '{}'",
                                  id, text, id, model.pieces[id].text),
                      "They are of two tokenizers: give the files of one");
      }
      continue;
    }
    for (const char* side : {"lstrip", "rstrip"}) {
      // Spaces around it are none of the text where the model removes them anyway.
      if (entry.is_object() && value_or(entry, side, false) &&
          !model.removes_extra_spaces) {
        refuse_config(fmt::format("token '{}' has {} set", text, side),
                      "That is not supported with a model that keeps spaces");
      }
    }
    added.push_back({text, id});
  }
}

void check_names(const SentencePieceModel& model, const Json& config,
                 const std::vector<AddedToken>& added) {
  for (const char* key : {"pad_token", "eos_token", "unk_token"}) {
    const std::string text = token_text(value_or(config, key, Json()));
    const auto is_it = [&](const auto& token) { return token.text == text; };
    if (text.empty() || std::ranges::any_of(model.pieces, is_it) ||
        std::ranges::any_of(added, is_it)) {
      continue;
    }
    refuse_config(fmt::format("the {} is '{}', which the model does not have", key, text),
                  "They are of two tokenizers: give the files of one");
  }
}

void add_sentinels(const SentencePieceModel& model, std::int64_t count,
                   std::vector<AddedToken>& added) {
  const auto first = static_cast<std::int64_t>(model.pieces.size());
  for (std::int64_t i = 0; i < count; ++i) {
    added.push_back({sentinel_text(i), static_cast<TokenId>(first + count - 1 - i)});
  }
}

std::vector<AddedToken> own_specials(const SentencePieceModel& model) {
  using Kind = SentencePieceModel::Kind;
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.kind == Kind::control || piece.kind == Kind::unknown) {
      added.push_back({piece.text, static_cast<TokenId>(id)});
    }
  }
  return added;
}

void take_config(const SentencePieceModel& model, const std::string& text,
                 std::vector<AddedToken>& added) {
  const Json config = parse_tokenizer_json(kTokenizerConfig, text);
  TRIREME_REQUIRE_INPUT(config.is_object(),
                        "tokenizer file '{}': expected an object, found {}",
                        kTokenizerConfig, config.type_name());
  require_own_ids(config);
  std::vector<AddedToken> decoded;
  take_decoder(model, value_or(config, "added_tokens_decoder", Json::object()), decoded);
  if (std::ranges::find(decoded, sentinel_text(0), &AddedToken::text) == decoded.end()) {
    add_sentinels(model, count_of_config(config).value_or(0), added);
  }
  added.insert(added.end(), decoded.begin(), decoded.end());
  check_names(model, config, added);
}

}  // namespace

bool is_sentence_piece_name(std::string_view file_name) {
  return file_name.ends_with(".model");
}

Tokenizer tokenizer_from_sentence_piece(const std::string& name, const std::string& model,
                                        const std::optional<std::string>& config) {
  SentencePieceModel parsed = SentencePieceModel::parse(name, model);
  std::vector<AddedToken> added = own_specials(parsed);
  TokenizerFiles files = {{kSentencePieceFile, model}};
  if (config) {
    try {
      take_config(parsed, *config, added);
    } catch (const io::JsonError& error) {
      throw InputError("tokenizer file " + error.in_file(kTokenizerConfig));
    }
    files[kTokenizerConfig] = *config;
  }
  return Tokenizer(std::make_shared<const SentencePiece>(name, std::move(parsed), model),
                   std::move(added), std::move(files));
}

Tokenizer with_sentinels(const Tokenizer& tokenizer, std::int64_t count) {
  const Sentinels there = tokenizer.sentinels();
  if (there.count == count) return tokenizer;
  TRIREME_REQUIRE_INPUT(
      tokenizer.files().contains(kSentencePieceFile) &&
          !tokenizer.files().contains(kTokenizerJson),
      "{} cannot be added to this tokenizer ({}): they can to a model of SentencePiece "
      "(.model). Of a tokenizer.json, add <extra_id_0> and on to its \"added_tokens\"",
      format_plural(count, "sentinel"), tokenizer.model().description());
  TRIREME_REQUIRE_INPUT(there.count == 0,
                        "the tokenizer has {} already, and {} are asked for: ids would "
                        "change. Leave --extra-ids out",
                        format_plural(there.count, "sentinel"), count);
  TRIREME_REQUIRE_INPUT(tokenizer.vocabulary_size() == tokenizer.model().size(),
                        "the tokenizer has tokens behind its {}, where the {} would be",
                        format_plural(tokenizer.model().size(), "piece"),
                        format_plural(count, "sentinel"));
  TokenizerFiles files = tokenizer.files();
  Json config = Json::object();
  if (files.contains(kTokenizerConfig)) {
    config = parse_tokenizer_json(kTokenizerConfig, files[kTokenizerConfig]);
  }
  config["extra_ids"] = count;
  // The class of transformers that knows what this means.
  if (!config.contains("tokenizer_class")) config["tokenizer_class"] = "T5Tokenizer";
  files[kTokenizerConfig] = io::json_text(config, 2) + "\n";
  return Tokenizer::from_files(std::move(files));
}

}  // namespace trireme::data

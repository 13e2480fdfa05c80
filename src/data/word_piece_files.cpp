// data/word_piece_files.cpp — see word_piece_files.hpp.
//
// What the files ask for and is not done here is refused by name: ignoring it would give
// other ids without a word. A vocab.txt has no structure that could tell whether it is
// whole; what tells is that each line ends, that BERT's five special tokens are there,
// and what lies beside it (vocabulary_size.hpp). Of case it says nothing either, and the
// wrong one would make half of a text unknown: the vocabulary itself is asked where
// nobody says.
#include "data/word_piece_files.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/utf8.hpp"
#include "base/words.hpp"
#include "data/tokenizer_files.hpp"
#include "data/tokenizer_values.hpp"
#include "data/word_piece.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kUnknown = "[UNK]";

// --- tokenizer.json

BasicTokenizerOptions read_normalizer(const std::string& name, const Json& entry) {
  if (entry.is_null()) {
    return {.clean_text = false,
            .handle_chinese_chars = false,
            .strip_accents = false,
            .lowercase = false};
  }
  TRIREME_REQUIRE_INPUT(
      type_of(entry) == "BertNormalizer",
      "tokenizer file '{}' has a normalizer that is not supported with WordPiece ({}): "
      "BertNormalizer is",
      name, io::json_excerpt(entry, 200));
  BasicTokenizerOptions options;
  options.clean_text = value_or(entry, "clean_text", true);
  options.handle_chinese_chars = value_or(entry, "handle_chinese_chars", true);
  options.lowercase = value_or(entry, "lowercase", true);
  options.strip_accents = value_or(entry, "strip_accents", options.lowercase);
  return options;
}

// Does it tidy up text? As it is made where the file does not say: yes.
bool read_decoder(const std::string& name, const Json& entry, const std::string& prefix) {
  if (entry.is_null()) return true;
  TRIREME_REQUIRE_INPUT(type_of(entry) == "WordPiece" &&
                            value_or<std::string>(entry, "prefix", "##") == prefix,
                        "tokenizer file '{}' has a decoder that is not supported with "
                        "WordPiece ({}): one of "
                        "type WordPiece with the prefix '{}' is",
                        name, io::json_excerpt(entry, 200), prefix);
  return value_or(entry, "cleanup", true);
}

TokenId id_of(const std::string& name, const std::vector<std::string>& tokens,
              const std::string& token) {
  const auto found = std::ranges::find(tokens, token);
  TRIREME_REQUIRE_INPUT(
      found != tokens.end() && !token.empty(),
      "tokenizer file '{}': the vocabulary lacks the token '{}', which stands for words "
      "that have no pieces (model.unk_token): add it to model.vocab, or name another",
      name, token);
  return static_cast<TokenId>(found - tokens.begin());
}

// --- vocab.txt and tokenizer_config.json

// BERT's, with what tokenizer_config.json calls them.
constexpr std::array<std::pair<std::string_view, const char*>, 5> kSpecials = {
    {{"[PAD]", "pad_token"},
     {kUnknown, "unk_token"},
     {"[CLS]", "cls_token"},
     {"[SEP]", "sep_token"},
     {"[MASK]", "mask_token"}}};

std::vector<std::string> read_word_list(const std::string& name,
                                        const std::string& list) {
  std::vector<std::string> tokens;
  for (std::string_view line : lines_of(list)) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    TRIREME_REQUIRE_INPUT(
        valid_utf8_prefix(line) == line.size(),
        "tokenizer file '{}': line {} is not UTF-8: is this the {} of a "
        "BERT model?",
        name, tokens.size() + 1, kWordList);
    tokens.emplace_back(line);
  }
  return tokens;
}

std::vector<AddedToken> find_specials(const std::string& name,
                                      const std::vector<std::string>& tokens) {
  std::vector<AddedToken> added;
  std::string missing;
  for (const auto& [text, key] : kSpecials) {
    // Of equal lines the last counts.
    const auto found = std::find(tokens.rbegin(), tokens.rend(), text);
    if (found == tokens.rend()) {
      missing += (missing.empty() ? "" : ", ") + std::string(text);
    } else {
      added.push_back(
          {std::string(text), static_cast<TokenId>(tokens.rend() - found - 1)});
    }
  }
  TRIREME_REQUIRE_INPUT(
      missing.empty(),
      "tokenizer file '{}': its {} lack {}. Take the whole {} of a BERT model; to a "
      "vocabulary of your own, add them as lines",
      name, format_plural(tokens.size(), "line"), missing, kWordList);
  return added;
}

void check_config(const Json& config) {
  const auto refuse = [](const std::string& what, const std::string& fix) {
    throw InputError(
        fmt::format("tokenizer file '{}': {}, which is not supported with {}: {}",
                    kTokenizerConfig, what, kWordList, fix));
  };
  TRIREME_REQUIRE_INPUT(config.is_object(),
                        "tokenizer file '{}': expected an object, found {}",
                        kTokenizerConfig, config.type_name());
  constexpr std::string_view kClasses[] = {"", "BertTokenizer", "DistilBertTokenizer",
                                           "ElectraTokenizer", "MobileBertTokenizer"};
  auto name = value_or<std::string>(config, "tokenizer_class", "");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (std::ranges::find(kClasses, name) == std::end(kClasses)) {
    refuse(fmt::format("the tokenizer_class '{}'", name),
           "BertTokenizer is. Where the model has a tokenizer.json, give that");
  }
  if (!value_or(config, "do_basic_tokenize", true)) {
    refuse("do_basic_tokenize: false", "only words of the basic tokenizer are");
  }
  if (!value_or(config, "never_split", Json()).empty()) {
    refuse("never_split", "give a tokenizer.json with those as \"added_tokens\"");
  }
  for (const auto& [text, key] : kSpecials) {
    const Json entry = value_or(config, key, Json(std::string(text)));
    const std::string given =
        entry.is_string()
            ? entry.get<std::string>()
            : (entry.is_object() ? io::json_value<std::string>(entry, "content")
                                 : io::json_excerpt(entry));
    if (given != text) {
      refuse(fmt::format("the {} '{}'", key, given), fmt::format("{} is", text));
    }
  }
}

BasicTokenizerOptions read_config(const std::string& text) {
  const Json config = parse_tokenizer_json(kTokenizerConfig, text);
  check_config(config);
  BasicTokenizerOptions options;
  options.lowercase = value_or(config, "do_lower_case", true);
  options.strip_accents = value_or(config, "strip_accents", options.lowercase);
  options.handle_chinese_chars = value_or(config, "tokenize_chinese_chars", true);
  return options;
}

// In a piece that is no "[UNK]" or the like.
bool has_capital(const std::string& token) {
  if (token.starts_with('[') && token.ends_with(']')) return false;
  return std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; });
}

}  // namespace

std::shared_ptr<const TokenModel> word_piece_of(const std::string& name,
                                                const Json& document) {
  const Json& model = document["model"];
  const Json pre_tokenizer = document.value("pre_tokenizer", Json());
  TRIREME_REQUIRE_INPUT(type_of(pre_tokenizer) == "BertPreTokenizer",
                        "tokenizer file '{}' has a pre_tokenizer that is not supported "
                        "with WordPiece ({}): "
                        "BertPreTokenizer is",
                        name, io::json_excerpt(pre_tokenizer, 200));
  const std::vector<std::string> tokens = vocabulary_of(name, model["vocab"]);
  const auto longest = value_or(model, "max_input_chars_per_word", std::uint64_t{100});
  WordPieceOptions options;
  options.basic = read_normalizer(name, document.value("normalizer", Json()));
  options.unknown =
      id_of(name, tokens, value_or(model, "unk_token", std::string(kUnknown)));
  options.prefix = value_or(model, "continuing_subword_prefix", options.prefix);
  options.longest_word = static_cast<std::size_t>(longest);
  options.cleans_up =
      read_decoder(name, document.value("decoder", Json()), options.prefix);
  return std::make_shared<const WordPiece>(tokens, std::move(options));
}

Tokenizer tokenizer_from_word_list(const std::string& name, const std::string& list,
                                   const std::optional<std::string>& config) {
  const std::vector<std::string> tokens = read_word_list(name, list);
  std::vector<AddedToken> added = find_specials(name, tokens);
  TRIREME_REQUIRE_INPUT(
      list.ends_with('\n'),
      "tokenizer file '{}': its last line, {}, does not end: the file is cut short. Copy "
      "it again, or end that line if the file is whole",
      name, tokens.size());
  WordPieceOptions options;
  TokenizerFiles files = {{kWordList, list}};
  if (config) {
    try {
      options.basic = read_config(*config);
    } catch (const io::JsonError& error) {
      throw InputError("tokenizer file " + error.in_file(kTokenizerConfig));
    }
    files[kTokenizerConfig] = *config;
  } else if (std::ranges::any_of(tokens, has_capital)) {
    options.basic = BasicTokenizerOptions::cased();
    options.source_of_case =
        "there is no tokenizer_config.json, and pieces have capitals";
  } else {
    options.source_of_case =
        "there is no tokenizer_config.json, and no piece has a capital";
  }
  const auto unknown = std::ranges::find(added, kUnknown, &AddedToken::text);
  options.unknown = unknown->id;
  return Tokenizer(std::make_shared<const WordPiece>(tokens, std::move(options)),
                   std::move(added), std::move(files));
}

}  // namespace trireme::data

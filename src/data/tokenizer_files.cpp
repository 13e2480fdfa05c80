// data/tokenizer_files.cpp — see tokenizer_files.hpp.
//
// A tokenizer.json may ask for many things (normalisers, other models, other pre-
// tokenizers); what Trireme does not do is refused by name, since ignoring it would give
// other ids without a word. Where both forms of a tokenizer say the same, they give equal
// tokenizers. The vocabulary is written by hand and not as a JSON object, because filling
// an ordered object of n keys takes time in n squared.
#include "data/tokenizer_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <unordered_map>

#include "base/error.hpp"
#include "base/words.hpp"
#include "data/byte_alphabet.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

Json parse_json(const std::string& name, const std::string& text) {
  try {
    return io::parse_json<Json>(text);
  } catch (const io::JsonError& error) {
    throw InputError("tokenizer file " + error.in_file(name));
  }
}

// Tokens by id, and ids by their visible text.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, TokenId> id_of;
};

constexpr std::int64_t kMostTokens = std::int64_t{1} << 26;

TokenId checked_id(const std::string& name, const std::string& text, const Json& id) {
  TRIREME_REQUIRE_INPUT(
      id.is_number_integer() && id.get<std::int64_t>() >= 0 &&
          id.get<std::int64_t>() < kMostTokens,
      "tokenizer file '{}': the id of token '{}' is {}, expected a number "
      "from 0 to {}",
      name, text, io::json_excerpt(id), kMostTokens - 1);
  return id.get<TokenId>();
}

Vocabulary read_vocabulary(const std::string& name, const Json& entries) {
  TRIREME_REQUIRE_INPUT(entries.is_object() && !entries.empty(),
                        "tokenizer file '{}': expected the vocabulary as an object of "
                        "token: id pairs, found {}",
                        name, entries.is_object() ? "an empty one" : entries.type_name());
  const ByteAlphabet alphabet;
  Vocabulary vocabulary;
  vocabulary.id_of.reserve(entries.size());
  for (const auto& [text, value] : entries.items()) {
    const TokenId id = checked_id(name, text, value);
    if (id >= vocabulary.tokens.size()) vocabulary.tokens.resize(id + 1);
    TRIREME_REQUIRE_INPUT(vocabulary.tokens[id].empty(),
                          "tokenizer file '{}': two tokens have the id {}, the second is "
                          "'{}'",
                          name, id, text);
    TRIREME_REQUIRE_INPUT(!text.empty(), "tokenizer file '{}': token {} is empty", name,
                          id);
    // What is not in the byte alphabet (an added token listed here) stands for itself.
    vocabulary.tokens[id] = alphabet.to_bytes(text).value_or(text);
    vocabulary.id_of.emplace(text, id);
  }
  return vocabulary;
}

BpeModel::Merge merge_of(const std::string& name, const Vocabulary& vocabulary,
                         std::size_t rank, const std::string& left,
                         const std::string& right) {
  const auto id = [&](const std::string& text) {
    const auto found = vocabulary.id_of.find(text);
    TRIREME_REQUIRE_INPUT(
        found != vocabulary.id_of.end(),
        "tokenizer file '{}': merge {} ('{}' '{}') needs the token '{}', "
        "which the vocabulary does not have. Are these the two files of "
        "one tokenizer?",
        name, rank + 1, left, right, text);
    return found->second;
  };
  return {{id(left), id(right)}, id(left + right)};
}

// "left right"; a token has no space in it.
BpeModel::Merge merge_of_line(const std::string& name, const Vocabulary& vocabulary,
                              std::size_t rank, const std::string& line) {
  const std::size_t space = line.find(' ');
  TRIREME_REQUIRE_INPUT(
      space != std::string::npos && space > 0 && space + 1 < line.size() &&
          line.find(' ', space + 1) == std::string::npos,
      "tokenizer file '{}': merge {} is '{}', expected two tokens with a "
      "space between",
      name, rank + 1, line);
  return merge_of(name, vocabulary, rank, line.substr(0, space), line.substr(space + 1));
}

std::vector<BpeModel::Merge> read_merges_text(const std::string& name,
                                              const std::string& text,
                                              const Vocabulary& vocabulary) {
  std::vector<BpeModel::Merge> merges;
  for (std::string_view line : lines_of(text)) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version")) continue;
    merges.push_back(merge_of_line(name, vocabulary, merges.size(), std::string(line)));
  }
  return merges;
}

std::vector<BpeModel::Merge> read_merges_json(const std::string& name, const Json& list,
                                              const Vocabulary& vocabulary) {
  TRIREME_REQUIRE_INPUT(list.is_array(),
                        "tokenizer file '{}': model.merges is not a list", name);
  std::vector<BpeModel::Merge> merges;
  merges.reserve(list.size());
  for (const Json& entry : list) {
    const std::size_t rank = merges.size();
    if (entry.is_string()) {
      merges.push_back(merge_of_line(name, vocabulary, rank, entry.get<std::string>()));
      continue;
    }
    TRIREME_REQUIRE_INPUT(
        entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
            entry[1].is_string(),
        "tokenizer file '{}': merge {} is {}, expected \"a b\" or [\"a\", \"b\"]", name,
        rank + 1, io::json_excerpt(entry));
    merges.push_back(merge_of(name, vocabulary, rank, entry[0].get<std::string>(),
                              entry[1].get<std::string>()));
  }
  return merges;
}

// What the pre_tokenizer entry of a tokenizer.json asks for.
struct Cutting {
  PreTokenizer pre_tokenizer = PreTokenizer::none();
  bool space_in_front = false;
};

// Value of a key that may be missing or null.
template <class T>
T value_or(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  if constexpr (std::is_same_v<T, Json>) {
    return *found;
  } else {
    return io::json_value<T>(object, key);
  }
}

Cutting read_pre_tokenizer(const std::string& name, const Json& entry) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(
        fmt::format("tokenizer file '{}': {}. Supported are ByteLevel, and a Sequence of "
                    "one Split by a "
                    "regular expression (behavior Isolated) and ByteLevel",
                    name, what));
  };
  const auto type_of = [&](const Json& part) {
    return part.is_object() ? value_or<std::string>(part, "type", "") : std::string();
  };
  Cutting cutting;
  const auto read_byte_level = [&](const Json& part, bool has_split) {
    cutting.space_in_front = value_or(part, "add_prefix_space", true);
    const bool use_pattern = value_or(part, "use_regex", true);
    if (has_split && use_pattern) refuse("a Split and ByteLevel with use_regex together");
    if (has_split && cutting.space_in_front)
      refuse("a Split and add_prefix_space together");
    if (use_pattern) cutting.pre_tokenizer = PreTokenizer::gpt2();
  };
  if (type_of(entry) == "ByteLevel") {
    read_byte_level(entry, false);
    return cutting;
  }
  if (type_of(entry) != "Sequence") {
    refuse(
        fmt::format("its pre_tokenizer is of type '{}', not byte-level", type_of(entry)));
  }
  const Json parts = value_or(entry, "pretokenizers", Json::array());
  if (parts.size() == 1 && type_of(parts[0]) == "ByteLevel") {
    read_byte_level(parts[0], false);
    return cutting;
  }
  if (parts.size() != 2 || type_of(parts[0]) != "Split" ||
      type_of(parts[1]) != "ByteLevel") {
    refuse(fmt::format("its pre_tokenizer is {}", io::json_excerpt(parts, 300)));
  }
  const Json& split = parts[0];
  const auto pattern = split.find("pattern");
  if (pattern == split.end() || !pattern->is_object() || !pattern->contains("Regex") ||
      value_or<std::string>(split, "behavior", "") != "Isolated" ||
      value_or(split, "invert", false)) {
    refuse(fmt::format("its Split is {}", io::json_excerpt(split, 300)));
  }
  read_byte_level(parts[1], true);
  cutting.pre_tokenizer = PreTokenizer(io::json_value<std::string>(*pattern, "Regex"));
  return cutting;
}

void check_model(const std::string& name, const Json& model) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(
        fmt::format("tokenizer file '{}': {}, which is not supported (only "
                    "byte-level BPE is; WordPiece and SentencePiece are not "
                    "read yet)",
                    name, what));
  };
  const auto type = value_or<std::string>(model, "type", "BPE");
  if (type != "BPE") refuse(fmt::format("the model is of type '{}'", type));
  if (value_or(model, "dropout", 0.0) != 0.0) refuse("BPE dropout");
  if (value_or(model, "byte_fallback", false)) refuse("byte_fallback");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = value_or<std::string>(model, key, "");
    if (!value.empty()) refuse(fmt::format("{} '{}'", key, value));
  }
}

std::vector<AddedToken> read_added_tokens(const std::string& name, const Json& list) {
  std::vector<AddedToken> added;
  for (const Json& entry : list) {
    const auto text = value_or<std::string>(entry, "content", "");
    TRIREME_REQUIRE_INPUT(!text.empty(),
                          "tokenizer file '{}': added token {} has no content", name,
                          io::json_excerpt(entry));
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      TRIREME_REQUIRE_INPUT(
          !value_or(entry, key, false),
          "tokenizer file '{}': added token '{}' has {} set, which is not "
          "supported",
          name, text, key);
    }
    added.push_back({text, checked_id(name, text, entry.value("id", Json(-1)))});
  }
  return added;
}

TokenId size_with(std::size_t tokens, const std::vector<AddedToken>& added) {
  auto size = static_cast<TokenId>(tokens);
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  return size;
}

}  // namespace

Tokenizer tokenizer_from_json(const std::string& name, const std::string& text) {
  const Json document = parse_json(name, text);
  try {
    TRIREME_REQUIRE_INPUT(
        document.is_object() && document.contains("model") &&
            document["model"].contains("vocab") && document["model"].contains("merges"),
        "tokenizer file '{}' has no model with vocab and merges: it is not "
        "a tokenizer.json of byte-level BPE",
        name);
    const Json& model = document["model"];
    check_model(name, model);
    const Json normalizer = document.value("normalizer", Json());
    TRIREME_REQUIRE_INPUT(
        normalizer.is_null(),
        "tokenizer file '{}' has a normalizer ({}), which is not supported", name,
        io::json_excerpt(normalizer, 200));
    const Vocabulary vocabulary = read_vocabulary(name, model["vocab"]);
    const Cutting cutting =
        read_pre_tokenizer(name, document.value("pre_tokenizer", Json::object()));

    Tokenizer tokenizer;
    tokenizer.pre_tokenizer_ = cutting.pre_tokenizer;
    tokenizer.space_in_front_ = cutting.space_in_front;
    tokenizer.model_ = std::make_shared<const BpeModel>(
        vocabulary.tokens, read_merges_json(name, model["merges"], vocabulary),
        value_or(model, "ignore_merges", false));
    tokenizer.added_ =
        read_added_tokens(name, value_or(document, "added_tokens", Json::array()));
    tokenizer.vocabulary_size_ = size_with(vocabulary.tokens.size(), tokenizer.added_);
    tokenizer.files_ = {{"tokenizer.json", text}};
    return tokenizer;
  } catch (const io::JsonError& error) {
    throw InputError("tokenizer file " + error.in_file(name));
  }
}

Tokenizer tokenizer_from_vocabulary(const std::string& vocabulary_name,
                                    const std::string& vocabulary_text,
                                    const std::string& merges_name,
                                    const std::string& merges) {
  const Vocabulary vocabulary =
      read_vocabulary(vocabulary_name, parse_json(vocabulary_name, vocabulary_text));
  Tokenizer tokenizer;
  tokenizer.pre_tokenizer_ = PreTokenizer::gpt2();
  tokenizer.model_ = std::make_shared<const BpeModel>(
      vocabulary.tokens, read_merges_text(merges_name, merges, vocabulary));
  const auto end = vocabulary.id_of.find("<|endoftext|>");
  if (end != vocabulary.id_of.end()) tokenizer.added_ = {{end->first, end->second}};
  tokenizer.vocabulary_size_ = static_cast<TokenId>(vocabulary.tokens.size());
  tokenizer.files_ = {{"vocab.json", vocabulary_text}, {"merges.txt", merges}};
  return tokenizer;
}

std::string tokenizer_json(const std::vector<std::string>& tokens,
                           const std::vector<Pair>& merges,
                           const std::vector<AddedToken>& added) {
  using Ordered = nlohmann::ordered_json;
  const ByteAlphabet alphabet;
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const std::string& token : tokens) texts.push_back(alphabet.to_text(token));
  Ordered added_list = Ordered::array();
  for (const AddedToken& token : added) {
    texts[token.id] = token.text;
    added_list.push_back({{"id", token.id},
                          {"content", token.text},
                          {"single_word", false},
                          {"lstrip", false},
                          {"rstrip", false},
                          {"normalized", false},
                          {"special", true}});
  }
  // An ordered_json object of n keys takes n^2 time to fill; the vocabulary is written by
  // hand.
  std::string vocabulary = "{";
  for (std::size_t id = 0; id < texts.size(); ++id) {
    vocabulary += fmt::format("{}\n      {}: {}", id == 0 ? "" : ",",
                              io::exact_json_text(Ordered(texts[id])), id);
  }
  vocabulary += "\n    }";
  Ordered merge_list = Ordered::array();
  for (const Pair& pair : merges) {
    merge_list.push_back({texts[pair.left], texts[pair.right]});
  }
  const Ordered byte_level = {{"type", "ByteLevel"},
                              {"add_prefix_space", false},
                              {"trim_offsets", true},
                              {"use_regex", true}};
  const std::string placeholder = "@vocabulary@";
  const Ordered document = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added_list},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", byte_level},
                            {"post_processor", nullptr},
                            {"decoder", byte_level},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", placeholder},
                              {"merges", merge_list}}}};
  std::string text = io::exact_json_text(document, 1);
  const std::string quoted = "\"" + placeholder + "\"";
  text.replace(text.find(quoted), quoted.size(), vocabulary);
  return text + "\n";
}

Tokenizer Tokenizer::from_files(TokenizerFiles files) {
  const auto find = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto found = files.find(name);
      if (found != files.end()) return found;
    }
    return files.end();
  };
  const auto json = find({"tokenizer.json"});
  if (json != files.end()) return tokenizer_from_json(json->first, json->second);
  const auto vocabulary = find({"vocab.json", "encoder.json"});
  const auto merges = find({"merges.txt", "vocab.bpe"});
  if (vocabulary != files.end() && merges != files.end()) {
    return tokenizer_from_vocabulary(vocabulary->first, vocabulary->second, merges->first,
                                     merges->second);
  }
  std::string names;
  for (const auto& [name, content] : files) names += (names.empty() ? "" : ", ") + name;
  throw InputError(fmt::format(
      "no tokenizer in these files: {}. Expected tokenizer.json, or vocab.json "
      "(encoder.json) with merges.txt (vocab.bpe)",
      names.empty() ? "none" : names));
}

Tokenizer Tokenizer::load(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> found = paths;
  if (paths.size() == 1 && std::filesystem::is_directory(paths[0])) {
    found.clear();
    for (const char* name :
         {"tokenizer.json", "vocab.json", "encoder.json", "merges.txt", "vocab.bpe"}) {
      if (std::filesystem::exists(paths[0] / name)) found.push_back(paths[0] / name);
    }
    TRIREME_REQUIRE_INPUT(!found.empty(),
                          "directory '{}' has no tokenizer: expected tokenizer.json, or "
                          "vocab.json (encoder.json) with merges.txt (vocab.bpe) in it",
                          paths[0].string());
  }
  if (found.size() == 1 && found[0].extension() == ".json") {
    // One JSON file is a tokenizer.json, whatever its name.
    const std::string text = io::read_file(found[0], "tokenizer file");
    return tokenizer_from_json(found[0].string(), text);
  }
  TokenizerFiles files;
  for (const auto& path : found) {
    files[path.filename().string()] = io::read_file(path, "tokenizer file");
  }
  return from_files(std::move(files));
}

}  // namespace trireme::data

// data/byte_level_bpe_files.cpp — see byte_level_bpe_files.hpp.
//
// A tokenizer.json may ask for BPE of other kinds and for other pre-tokenizers; what is
// not done here is refused by name. Where both forms of a tokenizer say the same, they
// give equal tokenizers. The vocabulary is written by hand and not as a JSON object,
// because filling an ordered object of n keys takes time in n squared.
#include "data/byte_level_bpe_files.hpp"

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/words.hpp"
#include "data/byte_alphabet.hpp"
#include "data/byte_level_bpe.hpp"
#include "data/tokenizer_values.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

// Tokens by id, in bytes, and ids by their visible text.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::unordered_map<std::string, TokenId> id_of;
};

Vocabulary read_vocabulary(const std::string& name, const Json& entries) {
  const ByteAlphabet alphabet;
  Vocabulary vocabulary{vocabulary_of(name, entries), {}};
  vocabulary.id_of.reserve(entries.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    std::string& token = vocabulary.tokens[id];
    if (token.empty()) continue;
    vocabulary.id_of.emplace(token, static_cast<TokenId>(id));
    // What is not in the byte alphabet (an added token listed here) stands for itself.
    token = alphabet.to_bytes(token).value_or(token);
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

Cutting read_pre_tokenizer(const std::string& name, const Json& entry) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(
        fmt::format("tokenizer file '{}': {}. Supported are ByteLevel, and a Sequence of "
                    "one Split by a "
                    "regular expression (behavior Isolated) and ByteLevel",
                    name, what));
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

void check_bpe(const std::string& name, const Json& model) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(fmt::format(
        "tokenizer file '{}': {}, which is not supported: of BPE only that on "
        "bytes is (GPT-2's)",
        name, what));
  };
  if (value_or(model, "dropout", 0.0) != 0.0) refuse("BPE dropout");
  if (value_or(model, "byte_fallback", false)) refuse("byte_fallback");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto value = value_or<std::string>(model, key, "");
    if (!value.empty()) refuse(fmt::format("{} '{}'", key, value));
  }
}

}  // namespace

std::shared_ptr<const TokenModel> byte_level_bpe_of(const std::string& name,
                                                    const Json& document) {
  const Json& model = document["model"];
  TRIREME_REQUIRE_INPUT(model.contains("merges"),
                        "tokenizer file '{}': its model of type BPE has no merges", name);
  check_bpe(name, model);
  const Json normalizer = document.value("normalizer", Json());
  TRIREME_REQUIRE_INPUT(
      normalizer.is_null(),
      "tokenizer file '{}' has a normalizer ({}), which is not supported with BPE", name,
      io::json_excerpt(normalizer, 200));
  const Vocabulary vocabulary = read_vocabulary(name, model["vocab"]);
  const Cutting cutting =
      read_pre_tokenizer(name, document.value("pre_tokenizer", Json::object()));
  return std::make_shared<const ByteLevelBpe>(
      BpeModel(vocabulary.tokens, read_merges_json(name, model["merges"], vocabulary),
               value_or(model, "ignore_merges", false)),
      cutting.pre_tokenizer, cutting.space_in_front);
}

Tokenizer tokenizer_from_vocabulary(const std::string& vocabulary_name,
                                    const std::string& vocabulary_text,
                                    const std::string& merges_name,
                                    const std::string& merges) {
  const Vocabulary vocabulary = read_vocabulary(
      vocabulary_name, parse_tokenizer_json(vocabulary_name, vocabulary_text));
  std::vector<AddedToken> added;
  const auto end = vocabulary.id_of.find("<|endoftext|>");
  if (end != vocabulary.id_of.end()) added = {{end->first, end->second}};
  return Tokenizer(
      std::make_shared<const ByteLevelBpe>(
          BpeModel(vocabulary.tokens, read_merges_text(merges_name, merges, vocabulary)),
          PreTokenizer::gpt2()),
      std::move(added), {{"vocab.json", vocabulary_text}, {"merges.txt", merges}});
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

}  // namespace trireme::data

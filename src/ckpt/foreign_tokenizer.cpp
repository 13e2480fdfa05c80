// ckpt/foreign_tokenizer.cpp — see foreign_tokenizer.hpp.
//
// Directories hold a tokenizer in several forms beside each other, of which transformers
// reads one or another. A tokenizer.json says all; the others are older forms of the
// same. Of those the SentencePiece model is kept beside it, as it is what the
// tokenizer.json was made from, and all that some programs read.
#include "ckpt/foreign_tokenizer.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "data/byte_level_bpe.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/tokenizer_files.hpp"
#include "data/vocabulary_size.hpp"
#include "data/word_piece.hpp"
#include "data/word_piece_files.hpp"
#include "io/json.hpp"

namespace trireme::ckpt {

namespace {

using data::kSentencePieceFile;
using data::kTokenizerConfig;
using data::kTokenizerJson;
using data::kWordList;

data::TokenizerFiles files_in(const io::Path& directory) {
  data::TokenizerFiles files;
  const auto add = [&](const char* name) {
    if (!std::filesystem::exists(directory / name)) return false;
    files[name] = io::read_file(directory / name, "tokenizer file");
    return true;
  };
  const bool is_whole = add(kTokenizerJson);
  if (!is_whole) {
    if (add("vocab.json") && add("merges.txt")) return files;
    files.clear();
  }
  // What their configuration says of case, sentinels and the like belongs to them.
  const bool has_list = !is_whole && add(kWordList), has_model = add(kSentencePieceFile);
  TRIREME_REQUIRE_INPUT(!has_list || !has_model,
                        "'{}' has two tokenizers, {} and {}: take away the one that is "
                        "not this model's",
                        directory.string(), kWordList, kSentencePieceFile);
  if (has_list || has_model) add(kTokenizerConfig);
  return files;
}

constexpr const char* kFix =
    "Put the model's own there, or take its files away to convert the weights alone";

data::Tokenizer require_usable(const data::TokenizerFiles& files,
                               const io::Path& directory) {
  try {
    return data::Tokenizer::from_files(files);
  } catch (const InputError& error) {
    throw InputError(fmt::format("'{}': the tokenizer cannot be used: {}. {}",
                                 directory.string(), error.what(), kFix));
  }
}

std::optional<data::Tokenizer> usable_json(const data::TokenizerFiles& files,
                                           const io::Path& directory, Log& log) {
  try {
    return data::Tokenizer::from_files(files);
  } catch (const InputError& error) {
    log.warning("'{}': {} is read in the place of {}: {}", directory.string(),
                kSentencePieceFile, kTokenizerJson, error.what());
    return std::nullopt;
  }
}

std::optional<data::Tokenizer> read_tokenizer(const io::Path& directory, Log& log) {
  data::TokenizerFiles files = files_in(directory);
  if (files.empty()) return std::nullopt;
  if (!files.contains(kTokenizerJson) || !files.contains(kSentencePieceFile)) {
    return require_usable(files, directory);
  }
  std::optional<data::Tokenizer> tokenizer = usable_json(files, directory, log);
  if (!tokenizer) {
    files.erase(kTokenizerJson);
    return require_usable(files, directory);
  }
  if (!tokenizer->files().contains(kSentencePieceFile)) {
    log.warning(
        "'{}': {} is left out: it is no model of the pieces that {} has, which is read",
        directory.string(), kSentencePieceFile, kTokenizerJson);
  }
  return tokenizer;
}

// transformers gives a model of SentencePiece these where nothing says how many.
data::Tokenizer with_usual_sentinels(const data::Tokenizer& tokenizer,
                                     const Dialect& dialect, index_t vocab) {
  const data::TokenizerFiles& files = tokenizer.files();
  const bool is_bare = files.size() == 1 && files.contains(kSentencePieceFile);
  if (!is_bare || tokenizer.vocabulary_size() + dialect.usual_sentinels > vocab) {
    return tokenizer;
  }
  return data::with_sentinels(tokenizer, dialect.usual_sentinels);
}

bool is_padding(index_t tokens, index_t rows) {
  return rows - tokens <= data::most_padding(rows);
}

// A list of words that was cut at the end of a line cannot be told from a whole one but
// by this.
void require_all_tokens(const data::Tokenizer& tokenizer, const ForeignConfig& config,
                        const io::Path& directory) {
  const index_t size = tokenizer.vocabulary_size(), vocab = config.vocab;
  TRIREME_REQUIRE_INPUT(
      config.tokens == size || is_padding(size, vocab),
      "'{}': the tokenizer ({}) has {}, and the model's table of words {}, more than "
      "padding explains: its file is cut short, or another model's. {}",
      directory.string(), tokenizer.model().description(), format_plural(size, "token"),
      format_plural(vocab, "row"), kFix);
}

// A tokenizer may well have fewer tokens than the model, whose rows are often padded.
void require_fitting(const data::Tokenizer& tokenizer, index_t vocab,
                     const std::string& whose, const char* fix) {
  const index_t size = tokenizer.vocabulary_size();
  TRIREME_REQUIRE_INPUT(
      size <= vocab,
      "{} ({}) has {}, and the model's table of words {}: it is another model's. {}",
      whose, tokenizer.model().description(), format_plural(size, "token"),
      format_plural(vocab, "row"), fix);
}

void compare_special(const data::Tokenizer& tokenizer, data::Special special,
                     std::optional<index_t> id, const char* key,
                     const io::Path& directory, Log& log) {
  const auto found = tokenizer.find_special(special);
  if (!id || !found || *id == index_t{*found}) return;
  log.warning(
      "'{}': config.json says {} {}, and that token of the tokenizer is {}: are "
      "they of one model?",
      directory.string(), key, *id, *found);
}

// The class of transformers that reads the files. A tokenizer.json may differ in its
// parts from those of any model's class; the generic one asks nothing of it.
const char* tokenizer_class_of(const data::TokenizerFiles& files) {
  if (files.contains(kTokenizerJson)) return "PreTrainedTokenizerFast";
  if (files.contains(kWordList)) return "BertTokenizer";
  return files.contains(kSentencePieceFile) ? "T5Tokenizer" : "GPT2Tokenizer";
}

// What the class would take otherwise without a word.
void add_options(const data::Tokenizer& tokenizer, nlohmann::ordered_json& json) {
  json["clean_up_tokenization_spaces"] = false;
  const data::TokenModel& model = tokenizer.model();
  if (const auto* words = dynamic_cast<const data::WordPiece*>(&model)) {
    const data::WordPieceOptions& options = words->options();
    json["clean_up_tokenization_spaces"] = options.cleans_up;
    json["do_lower_case"] = options.basic.lowercase;
    json["strip_accents"] = options.basic.strip_accents;
    json["tokenize_chinese_chars"] = options.basic.handle_chinese_chars;
  } else if (dynamic_cast<const data::ByteLevelBpe*>(&model) != nullptr) {
    json["add_prefix_space"] = false;
  } else if (!tokenizer.files().contains(kTokenizerJson)) {
    json["extra_ids"] = tokenizer.sentinels().count;
    json["legacy"] = true;  // a space in front of what follows a special token, too
  }
}

std::string tokenizer_config(const data::Tokenizer& tokenizer, const Dialect& dialect,
                             const ForeignConfig& config) {
  nlohmann::ordered_json json;
  json["tokenizer_class"] = tokenizer_class_of(tokenizer.files());
  json["model_max_length"] = config.sequence;
  add_options(tokenizer, json);
  for (const auto& [name, special] : dialect.special_tokens) {
    index_t id = -1;
    if (special == data::Special::end_of_document) {
      id = config.end_of_text.value_or(-1);
    } else if (const auto found = tokenizer.find_special(special)) {
      id = *found;
    }
    if (id < 0 || id >= tokenizer.vocabulary_size()) continue;
    json[name] = tokenizer.decode({static_cast<data::TokenId>(id)});
  }
  return io::exact_json_text(json, 2) + "\n";
}

}  // namespace

data::TokenizerFiles find_tokenizer(const io::Path& directory, const Dialect& dialect,
                                    const ForeignConfig& config, Log& log) {
  const std::optional<data::Tokenizer> read = read_tokenizer(directory, log);
  if (!read) return {};
  const data::Tokenizer tokenizer = with_usual_sentinels(*read, dialect, config.vocab);
  require_fitting(tokenizer, config.vocab,
                  fmt::format("'{}': the tokenizer", directory.string()), kFix);
  require_all_tokens(tokenizer, config, directory);
  compare_special(tokenizer, data::Special::end_of_document, config.end_of_text,
                  "eos_token_id", directory, log);
  compare_special(tokenizer, data::Special::padding, config.padding, "pad_token_id",
                  directory, log);
  return tokenizer.files();
}

WrittenTokenizer for_transformers(const data::TokenizerFiles& files,
                                  const Dialect& dialect, const ForeignConfig& config) {
  if (files.empty()) return {};
  const data::Tokenizer tokenizer = data::Tokenizer::from_files(files);
  require_fitting(tokenizer, config.vocab, "the checkpoint's tokenizer",
                  "Convert the model again with its own tokenizer beside the weights");
  WrittenTokenizer written{.files = tokenizer.files()};
  if (!written.files.contains(kTokenizerConfig)) {
    written.files[kTokenizerConfig] = tokenizer_config(tokenizer, dialect, config);
  }
  const index_t size = tokenizer.vocabulary_size();
  if (!is_padding(size, config.vocab)) written.tokens = size;
  return written;
}

}  // namespace trireme::ckpt

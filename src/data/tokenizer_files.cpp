// data/tokenizer_files.cpp — see tokenizer_files.hpp.
//
// A tokenizer.json may ask for many things (normalisers, other models, other pre-
// tokenizers); what Trireme does not do is refused by name, since ignoring it would give
// other ids without a word. Whichever file says more than another comes first: where a
// directory has a tokenizer.json, ids are those of that. A SentencePiece model of the
// same pieces beside it is kept with it, for programs that read nothing else. Of the
// other files none says more than another: two tokenizers of them are refused.
#include "data/tokenizer_files.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "data/byte_level_bpe_files.hpp"
#include "data/sentence_piece.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/tokenizer_values.hpp"
#include "data/vocabulary_size.hpp"
#include "data/word_piece_files.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

const SentencePiece* as_sentence_piece(const TokenModel& model) {
  return dynamic_cast<const SentencePiece*>(&model);
}

// Spaces around an added token are none of the text where the model removes them anyway:
// there it does not matter which of them the token takes.
bool removes_spaces(const TokenModel& model) {
  const SentencePiece* pieces = as_sentence_piece(model);
  return pieces != nullptr && pieces->model().removes_extra_spaces;
}

// is_normalized: the text that they are looked for in is not what the model gets.
std::vector<AddedToken> read_added_tokens(const std::string& name, const Json& list,
                                          bool is_normalized, const TokenModel& model) {
  std::vector<AddedToken> added;
  for (const Json& entry : list) {
    const auto text = value_or<std::string>(entry, "content", "");
    TRIREME_REQUIRE_INPUT(!text.empty(),
                          "tokenizer file '{}': added token {} has no content", name,
                          io::json_excerpt(entry));
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      const bool is_of_spaces = std::string_view(key).ends_with("strip");
      TRIREME_REQUIRE_INPUT(
          !value_or(entry, key, false) || (is_of_spaces && removes_spaces(model)),
          "tokenizer file '{}': added token '{}' has {} set, which is not "
          "supported",
          name, text, key);
    }
    TRIREME_REQUIRE_INPUT(
        !(is_normalized && value_or(entry, "normalized", false)),
        "tokenizer file '{}': added token '{}' is to be looked for in normalized text, "
        "which is not supported: set its \"normalized\" to false",
        name, text);
    added.push_back({text, checked_id(name, text, entry.value("id", Json(-1)))});
  }
  return added;
}

std::shared_ptr<const TokenModel> model_of(const std::string& name,
                                           const Json& document) {
  const bool has_model = document.is_object() && document.contains("model") &&
                         document["model"].is_object() &&
                         document["model"].contains("vocab");
  TRIREME_REQUIRE_INPUT(
      has_model, "tokenizer file '{}' has no model with a vocab: it is no tokenizer.json",
      name);
  const Json& model = document["model"];
  // Older files of BPE do not name their type.
  const std::string type = model.contains("type") ? type_of(model) : "BPE";
  if (type == "Unigram" || (type == "BPE" && is_bpe_on_characters(document))) {
    return sentence_piece_of(name, document);
  }
  if (type == "BPE") return byte_level_bpe_of(name, document);
  if (type == "WordPiece") return word_piece_of(name, document);
  throw InputError(fmt::format(
      "tokenizer file '{}': the model is of type '{}', which is not supported: give the "
      "files of a BPE on bytes (GPT-2's), of a WordPiece (BERT's) or of a SentencePiece "
      "model (T5's)",
      name, type));
}

// Whether `bytes` are a model whose pieces are the first tokens of another, by id.
bool has_its_pieces(const TokenModel& model, const std::string& bytes) {
  const SentencePiece* pieces = as_sentence_piece(model);
  if (pieces == nullptr) return false;
  try {
    const SentencePieceModel beside =
        SentencePieceModel::parse(kSentencePieceFile, bytes);
    const auto& all = pieces->model().pieces;
    return beside.pieces.size() <= all.size() &&
           std::ranges::equal(beside.pieces, std::span(all).first(beside.pieces.size()),
                              {}, &SentencePieceModel::Piece::text,
                              &SentencePieceModel::Piece::text);
  } catch (const InputError&) {
    return false;  // it is no model
  }
}

using Paths = std::vector<std::filesystem::path>;

bool is_model(const std::filesystem::path& path) {
  return is_sentence_piece_name(path.filename().string());
}

Paths tokenizer_files_in(const std::filesystem::path& directory) {
  Paths found;
  for (const char* name :
       {kTokenizerJson, "vocab.json", "encoder.json", "merges.txt", "vocab.bpe",
        kWordList, kSentencePieceFile, "tokenizer.model", "sentencepiece.bpe.model"}) {
    if (std::filesystem::exists(directory / name)) found.push_back(directory / name);
  }
  // A model of another name is one, too; a tokenizer.json has no use for it.
  if (found.empty() || found.front().filename() != kTokenizerJson) {
    Paths others;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.is_regular_file() && is_model(entry.path()) &&
          std::ranges::find(found, entry.path()) == found.end()) {
        others.push_back(entry.path());
      }
    }
    std::ranges::sort(others);
    found.insert(found.end(), others.begin(), others.end());
  }
  TRIREME_REQUIRE_INPUT(!found.empty(),
                        "directory '{}' has no tokenizer: expected tokenizer.json, "
                        "vocab.json (encoder.json) with merges.txt (vocab.bpe), "
                        "vocab.txt or a .model of SentencePiece in it",
                        directory.string());
  return found;
}

// A file of each tokenizer that is there. Equal models under two names are one.
Paths tokenizers_among(const Paths& found) {
  const auto find = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find_if(found, [&](const std::filesystem::path& path) {
      return std::ranges::find(names, path.filename().string()) != names.end();
    });
  };
  Paths tokenizers;
  const auto vocabulary = find({"vocab.json", "encoder.json"});
  if (vocabulary != found.end() && find({"merges.txt", "vocab.bpe"}) != found.end()) {
    tokenizers.push_back(*vocabulary);
  }
  if (const auto list = find({kWordList}); list != found.end()) {
    tokenizers.push_back(*list);
  }
  std::set<std::string> models;
  for (const std::filesystem::path& path : found) {
    if (!is_model(path)) continue;
    if (models.insert(io::read_file(path, "tokenizer file")).second) {
      tokenizers.push_back(path);
    }
  }
  return tokenizers;
}

void require_one_tokenizer(const Paths& found) {
  const bool has_json = std::ranges::any_of(
      found, [](const auto& path) { return path.filename() == kTokenizerJson; });
  if (has_json) return;
  const Paths tokenizers = tokenizers_among(found);
  TRIREME_REQUIRE_INPUT(
      tokenizers.size() <= 1,
      "'{}' and '{}' are of two tokenizers, and nothing says which one is meant: give "
      "the file of one alone, by its name",
      tokenizers[0].string(), tokenizers[1].string());
}

// Is a list or a model that has all ids as long as the files beside it say?
void require_whole(const Tokenizer& tokenizer, const Paths& found) {
  const TokenizerFiles& files = tokenizer.files();
  const bool is_list = files.contains(kWordList);
  if (files.contains(kTokenizerJson) || (!is_list && !files.contains(kSentencePieceFile)))
    return;
  const auto file = std::ranges::find_if(found, [&](const auto& path) {
    return is_list ? path.filename() == kWordList : is_model(path);
  });
  if (file == found.end()) return;
  require_size_beside(
      *file, {is_list ? VocabularyFile::word_list : VocabularyFile::sentence_piece,
              tokenizer.model().size(), tokenizer.vocabulary_size()});
}

}  // namespace

Tokenizer tokenizer_from_json(const std::string& name, const std::string& text) {
  const Json document = parse_tokenizer_json(name, text);
  try {
    const std::shared_ptr<const TokenModel> model = model_of(name, document);
    return Tokenizer(
        model,
        read_added_tokens(name, value_or(document, "added_tokens", Json::array()),
                          !document.value("normalizer", Json()).is_null(), *model),
        {{kTokenizerJson, text}});
  } catch (const io::JsonError& error) {
    throw InputError("tokenizer file " + error.in_file(name));
  }
}

Tokenizer Tokenizer::from_files(TokenizerFiles files) {
  const auto find = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const auto found = files.find(name);
      if (found != files.end()) return found;
    }
    return files.end();
  };
  const auto config = find({kTokenizerConfig});
  const auto json = find({kTokenizerJson});
  if (json != files.end()) {
    Tokenizer tokenizer = tokenizer_from_json(json->first, json->second);
    const auto beside = find({kSentencePieceFile});
    if (beside != files.end() && has_its_pieces(tokenizer.model(), beside->second)) {
      tokenizer.files_.insert(*beside);
      if (config != files.end()) tokenizer.files_.insert(*config);
    }
    return tokenizer;
  }
  const auto vocabulary = find({"vocab.json", "encoder.json"});
  const auto merges = find({"merges.txt", "vocab.bpe"});
  if (vocabulary != files.end() && merges != files.end()) {
    return tokenizer_from_vocabulary(vocabulary->first, vocabulary->second, merges->first,
                                     merges->second);
  }
  const auto words = find({kWordList});
  if (words != files.end()) {
    return tokenizer_from_word_list(
        words->first, words->second,
        config != files.end() ? std::optional(config->second) : std::nullopt);
  }
  const auto model = std::ranges::find_if(
      files, [](const auto& file) { return is_sentence_piece_name(file.first); });
  if (model != files.end()) {
    return tokenizer_from_sentence_piece(
        model->first, model->second,
        config != files.end() ? std::optional(config->second) : std::nullopt);
  }
  std::string names;
  for (const auto& [name, content] : files) names += (names.empty() ? "" : ", ") + name;
  throw InputError(
      fmt::format("no tokenizer in these files: {}. Expected tokenizer.json, vocab.json "
                  "(encoder.json) with merges.txt (vocab.bpe), vocab.txt, or a .model of "
                  "SentencePiece",
                  names.empty() ? "none" : names));
}

bool is_one_tokenizer(const TokenizerFiles& a, const TokenizerFiles& b) {
  const auto json = a.find(kTokenizerJson), other = b.find(kTokenizerJson);
  if (json == a.end() || other == b.end()) return a == b;
  return json->second == other->second;
}

Tokenizer Tokenizer::load(const std::vector<std::filesystem::path>& paths) {
  const bool is_directory = paths.size() == 1 && std::filesystem::is_directory(paths[0]);
  std::vector<std::filesystem::path> found =
      is_directory ? tokenizer_files_in(paths[0]) : paths;
  if (found.size() == 1 && found[0].extension() == ".json") {
    // One JSON file is a tokenizer.json, whatever its name.
    const std::string text = io::read_file(found[0], "tokenizer file");
    return tokenizer_from_json(found[0].string(), text);
  }
  require_one_tokenizer(found);
  if (!found.empty() &&
      (found.back().filename() == kWordList || is_model(found.back()))) {
    // What it says of case and accents, or of sentinels, belongs to it.
    const auto config = found.back().parent_path() / kTokenizerConfig;
    if (std::filesystem::exists(config)) found.push_back(config);
  }
  TokenizerFiles files;
  for (const auto& path : found) {
    files[path.filename().string()] = io::read_file(path, "tokenizer file");
  }
  Tokenizer tokenizer = from_files(std::move(files));
  require_whole(tokenizer, found);
  return tokenizer;
}

}  // namespace trireme::data

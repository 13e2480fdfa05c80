// data/vocabulary_size.cpp — see vocabulary_size.hpp.
//
// What a cut loses is the end of a file from some block on: thousands of words, or
// hundreds. What padding adds to a table is less than the multiple that its rows are
// padded to, and the number of rows bounds that. So few words lost may pass where the
// number is a round one, and none where it is not: of Google's BERTs, whose lists have as
// many lines as the tables have rows, 30,522 and 28,996 are no multiples of 8, and 21,128
// is one of 8 alone. Example: to 30,528 rows, 477 times 64, belongs a list of 30,522; of
// one with 30,464 lines 64 are missing, which no padding to 64 explains.
//
// A model of SentencePiece tells itself when it is cut short; one of another model is
// what is looked for. It has fewer pieces than the table has rows, as the sentinels are
// none of them and are often named nowhere: 32,000 to T5's 32,128, 256,000 to umT5's
// 256,384, whose 300 are the most of a published model. With the padding of any of them
// no more than 427 rows may be left over.
//
// More tokens than rows are never right: the last ones would have ids that the model does
// not know. A tokenizer.json counts its pieces, and nothing in it is padded; where it
// agrees, the file is whole, and rows that are left over are the model's own affair.
#include "data/vocabulary_size.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/tokenizer.hpp"
#include "data/tokenizer_files.hpp"
#include "data/tokenizer_values.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

constexpr index_t kMostMultiple = 128;
constexpr index_t kMostUnnamedSentinels = 300;  // umT5's

// From the fewest tokens of the right file to the most, and the file's words for it.
struct SaidSize {
  index_t least = 0, most = 0;
  std::string words;
};

std::optional<SaidSize> size_in_config(const Json& config, VocabularyFile kind) {
  const auto said = config.find("vocab_size");
  if (said == config.end() || said->is_null()) return std::nullopt;
  const auto rows = io::json_value<std::int64_t>(config, "vocab_size");
  if (config.contains(kTokensKey)) {
    const auto tokens = io::json_value<std::int64_t>(config, kTokensKey);
    return SaidSize{tokens, rows, fmt::format("{} {}", kTokensKey, tokens)};
  }
  const bool is_list = kind == VocabularyFile::word_list;
  const index_t spare = std::clamp<index_t>(
      is_list ? most_padding(rows) : kMostUnnamedSentinels + kMostMultiple - 1, 0,
      std::max<index_t>(rows, 0));
  SaidSize size{rows - spare, rows, fmt::format("vocab_size {}", rows)};
  if (spare > 0) {
    size.words += fmt::format(" (at most {} of it {})", spare,
                              is_list ? "padding" : "sentinels and padding");
  }
  return size;
}

// Is the tokenizer.json of the kind that such a file is a part of?
bool is_of_kind(const Json& document, const Json& model, VocabularyFile kind) {
  const std::string type = type_of(model);
  if (kind == VocabularyFile::word_list) return type == "WordPiece";
  return type == "Unigram" || (type == "BPE" && is_bpe_on_characters(document));
}

std::set<index_t> added_ids(const std::string& name, const Json& document) {
  std::set<index_t> ids;
  const auto added = document.find("added_tokens");
  if (added == document.end()) return ids;
  for (const Json& token : *added) {
    if (!token.is_object()) continue;
    ids.insert(checked_id(name, io::json_excerpt(token), token.value("id", Json(-1))));
  }
  return ids;
}

// Added tokens may stand in a list of words or not. Those of a tokenizer.json that was
// made of a SentencePiece model are among its pieces, as the sentinels are.
std::optional<SaidSize> size_in_tokenizer(const std::string& name, const Json& document,
                                          VocabularyFile kind) {
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return std::nullopt;
  const auto vocabulary = model->find("vocab");
  if (vocabulary == model->end() || !vocabulary->is_structured() || vocabulary->empty() ||
      !is_of_kind(document, *model, kind)) {
    return std::nullopt;
  }
  const std::set<index_t> added = added_ids(name, document);
  SaidSize size;
  size.most = added.empty() ? 0 : *added.rbegin() + 1;
  const auto take = [&](std::string_view text, index_t id) {
    size.most = std::max(size.most, id + 1);
    const bool may_lack =
        kind == VocabularyFile::sentence_piece &&
        (added.contains(id) || text.find(kSentinelBegin) != std::string_view::npos);
    if (!may_lack) size.least = std::max(size.least, id + 1);
  };
  if (vocabulary->is_object()) {
    for (const auto& [text, id] : vocabulary->items()) {
      take(text, checked_id(name, text, id));
    }
  } else {
    index_t id = 0;
    for (const Json& piece : *vocabulary) {
      const bool has_text = piece.is_array() && !piece.empty() && piece[0].is_string();
      take(has_text ? piece[0].get_ref<const std::string&>() : std::string(), id++);
    }
  }
  size.words = format_plural(size.least, "piece");
  if (size.most > size.least) {
    size.words += fmt::format(" ({} with added ones)", format_grouped(size.most));
  }
  return size;
}

// How a file that is right after all is taken. A tokenizer_config.json says more than a
// size, and without it there would be other ids.
std::string way_out(const std::filesystem::path& file, std::string_view name) {
  if (name == kTokenizerConfig) return fmt::format("take vocab_size out of {}", name);
  return fmt::format("give {} from a directory without {} (but with its {})",
                     file.filename().string(), name, kTokenizerConfig);
}

std::optional<SaidSize> size_in(const std::filesystem::path& path,
                                const std::filesystem::path& file, VocabularyFile kind) {
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  const std::string name = path.string();
  try {
    const auto json = io::parse_json<Json>(io::read_file(path));
    if (!json.is_object()) return std::nullopt;
    return path.filename() == kTokenizerJson ? size_in_tokenizer(name, json, kind)
                                             : size_in_config(json, kind);
  } catch (const io::JsonError& error) {
    throw InputError(fmt::format(
        "{}. It is read for the size of the vocabulary, as it lies beside "
        "'{}': copy it again, or {}",
        error.in_file(name), file.string(), way_out(file, path.filename().string())));
  }
}

[[noreturn]] void refuse_size(const std::filesystem::path& file,
                              const VocabularySize& size, const char* name,
                              const SaidSize& said, bool is_few) {
  const bool is_list = size.kind == VocabularyFile::word_list;
  std::string counted = format_plural(size.own, is_list ? "line" : "piece");
  if (is_few && size.all > size.own) {
    counted += fmt::format(" ({} with added ones)", format_grouped(size.all));
  }
  const char* const whose = is_list ? "the list is another model's" : "another model's";
  const char* const problem =
      is_few && is_list ? "the list is cut short, or another model's" : whose;
  throw InputError(fmt::format(
      "'{}' has {}, and '{}' beside it says {}, so these are too {}: {}. Copy the "
      "model's own again. If the file is the right one, {}; where tokens were added to "
      "it, give the model's tokenizer.json",
      file.string(), counted, (file.parent_path() / name).string(), said.words,
      is_few ? "few" : "many", problem, way_out(file, name)));
}

}  // namespace

index_t most_padding(index_t rows) {
  constexpr index_t kLeastMultiple = 8;
  if (rows <= 0) return 0;
  // A few are made round for people: ERNIE 1.0 has 17,964 words in 18,000 rows.
  if (rows % 1000 == 0) return kMostMultiple - 1;
  const index_t multiple = std::min(rows & -rows, kMostMultiple);  // a power of two
  return multiple < kLeastMultiple ? 0 : multiple - 1;
}

void require_size_beside(const std::filesystem::path& file, const VocabularySize& size) {
  bool is_whole = false;
  for (const char* const name : {kTokenizerJson, "config.json", kTokenizerConfig}) {
    const bool is_tokenizer = name == std::string_view(kTokenizerJson);
    const std::optional<SaidSize> said =
        size_in(file.parent_path() / name, file, size.kind);
    if (!said) continue;
    // A row of the table is there for an added token, too.
    const index_t present = is_tokenizer ? size.own : size.all;
    const bool is_few = present < said->least && !is_whole;
    if (is_few || size.own > said->most) refuse_size(file, size, name, *said, is_few);
    is_whole |= is_tokenizer;
  }
}

}  // namespace trireme::data

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
// More lines than rows are never right: the last words would have ids that the model does
// not know. A tokenizer.json counts its pieces, and nothing in it is padded.
#include "data/vocabulary_size.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "data/tokenizer_files.hpp"
#include "data/tokenizer_values.hpp"
#include "io/files.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

// From the fewest lines of a whole list to the most, and the file's words for it.
struct SaidSize {
  index_t least = 0, most = 0;
  std::string words;
};

std::optional<SaidSize> size_in_config(const Json& config) {
  if (value_or(config, "vocab_size", Json()).is_null()) return std::nullopt;
  const auto rows = io::json_value<std::int64_t>(config, "vocab_size");
  const index_t padding = most_padding(rows);
  return SaidSize{rows - padding, rows,
                  padding == 0 ? fmt::format("vocab_size {}", rows)
                               : fmt::format("vocab_size {} (at most {} of it padding)",
                                             rows, padding)};
}

// Tokens that were added to the pieces may stand in the list or not.
std::optional<SaidSize> size_in_tokenizer(const std::string& name, const Json& document) {
  const Json model = value_or(document, "model", Json());
  if (type_of(model) != "WordPiece") return std::nullopt;
  const Json vocabulary = value_or(model, "vocab", Json());
  if (!vocabulary.is_object() || vocabulary.empty()) return std::nullopt;
  SaidSize size;
  for (const auto& [text, id] : vocabulary.items()) {
    size.least = std::max(size.least, index_t{checked_id(name, text, id)} + 1);
  }
  size.most = size.least;
  const Json added = value_or(document, "added_tokens", Json::array());
  for (const Json& token : added) {
    if (!token.is_object()) continue;
    const index_t id = checked_id(name, io::json_excerpt(token), token.value("id", -1));
    size.most = std::max(size.most, id + 1);
  }
  size.words = format_plural(size.least, "piece");
  return size;
}

std::optional<SaidSize> size_in(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  const std::string name = path.string();
  try {
    const auto json = io::parse_json<Json>(io::read_file(path));
    if (!json.is_object()) return std::nullopt;
    return path.filename() == kTokenizerJson ? size_in_tokenizer(name, json)
                                             : size_in_config(json);
  } catch (const io::JsonError& error) {
    throw InputError(
        fmt::format("{}. It is read for the size of the vocabulary, as it lies beside a "
                    "vocab.txt: copy it again, or give the list from a directory without "
                    "it",
                    error.in_file(name)));
  }
}

}  // namespace

index_t most_padding(index_t rows) {
  constexpr index_t kLeastMultiple = 8, kMostMultiple = 128;
  if (rows <= 0) return 0;
  // A few are made round for people: ERNIE 1.0 has 17,964 words in 18,000 rows.
  if (rows % 1000 == 0) return kMostMultiple - 1;
  const index_t multiple = std::min(rows & -rows, kMostMultiple);  // a power of two
  return multiple < kLeastMultiple ? 0 : multiple - 1;
}

void require_size_beside(const std::filesystem::path& list, index_t tokens) {
  for (const char* const name : {"config.json", kTokenizerConfig, kTokenizerJson}) {
    const std::filesystem::path path = list.parent_path() / name;
    const std::optional<SaidSize> said = size_in(path);
    if (!said) continue;
    const char* const problem = tokens < said->least
                                    ? "too few: the list is cut short, or another model's"
                                    : "too many: the list is another model's";
    TRIREME_REQUIRE_INPUT(
        said->least <= tokens && tokens <= said->most,
        "'{}' has {}, and '{}' beside it says {}, so these are {}. Copy the model's own "
        "again. If the list is whole, give it from a directory without {}; where tokens "
        "were added to it, give the model's tokenizer.json",
        list.string(), format_plural(tokens, "line"), path.string(), said->words, problem,
        name);
  }
}

}  // namespace trireme::data

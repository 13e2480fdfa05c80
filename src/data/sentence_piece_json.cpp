// data/sentence_piece_json.cpp — a tokenizer.json with the pieces of a SentencePiece
// model, turned back into one. See sentence_piece_files.hpp.
//
// What the library does in one go, Hugging Face's file spells in steps: a map of
// characters (Precompiled), spaces removed (WhitespaceSplit, or Strip and Replace), and
// spaces marked (Metaspace, or Prepend and Replace). The combinations that are one of the
// library's own settings are taken, every other is refused, as ids would differ.
//
// Of BPE the file has a list of merges, the library scores of pieces, and merges any two
// neighbours that are a piece together. These are the same where each piece has all its
// merges, one after the other, as files made from a SentencePiece model do.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "data/sentence_piece.hpp"
#include "data/sentence_piece_files.hpp"
#include "data/tokenizer_values.hpp"
#include "io/json.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

// The parts of a Sequence, one level deep; a part alone is a sequence of one.
std::vector<Json> steps_of(const Json& entry, const char* key) {
  if (entry.is_null()) return {};
  if (type_of(entry) != "Sequence") return {entry};
  const Json parts = value_or(entry, key, Json::array());
  return {parts.begin(), parts.end()};
}

// The bytes of base64, or nothing where it is none.
std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8));
  }
  return bytes;
}

bool is_replace(const Json& step, const char* kind, std::string_view pattern) {
  if (type_of(step) != "Replace") return false;
  const Json given = value_or(step, "pattern", Json());
  return given.is_object() && value_or<std::string>(given, kind, "") == pattern;
}

std::string content_of(const Json& step) {
  return value_or<std::string>(step, "content", "");
}

class PieceJson {
 public:
  PieceJson(const std::string& name, const Json& document)
      : name_(name), document_(document), model_json_(document["model"]) {
    for (const Json& token : value_or(document, "added_tokens", Json::array())) {
      added_.insert(value_or<std::string>(token, "content", ""));
    }
  }

  std::shared_ptr<const TokenModel> read() {
    read_normalizer();
    read_pre_tokenizer();
    const bool is_unigram = type_of(model_json_) == "Unigram";
    if (is_unigram) {
      read_unigram();
    } else {
      read_bpe();
    }
    if (splits_words_) check_words();
    model_.check(name_);
    if (model_.removes_extra_spaces) check_spaces();
    const std::string bytes = model_.serialized();
    return std::make_shared<const SentencePiece>(name_, std::move(model_), bytes, front_);
  }

 private:
  using Piece = SentencePieceModel::Piece;
  using Kind = SentencePieceModel::Kind;

  [[noreturn]] void refuse(const std::string& what, const std::string& fix) const {
    throw InputError(fmt::format("tokenizer file '{}': {}, which is not supported: {}",
                                 name_, what, fix));
  }
  void refuse_unless(bool is_right, const std::string& what,
                     const std::string& fix) const {
    if (!is_right) refuse(what, fix);
  }

  void read_normalizer();
  void read_pre_tokenizer();
  void read_metaspace(const Json& step, bool is_split_at_spaces);
  void read_unigram();
  void read_bpe();
  void add_piece(const std::string& text, float score);
  void set_unknown(std::size_t id);
  void score_merges();
  std::pair<std::string, std::string> merge_of(const Json& entry) const;
  void check_words() const;
  void check_spaces() const;

  const std::string& name_;
  const Json& document_;
  const Json& model_json_;
  std::unordered_set<std::string> added_;
  SentencePieceModel model_;
  FrontSpace front_ = FrontSpace::always;
  // What the normalizer does with spaces.
  bool marks_spaces_ = false, strips_spaces_ = false;
  bool splits_words_ = false;  // no piece goes over the front of a word
};

void PieceJson::read_normalizer() {
  const Json entry = document_.value("normalizer", Json());
  std::vector<Json> steps = steps_of(entry, "normalizers");
  const auto take = [&](auto&& is_it) {
    if (steps.empty() || !is_it(steps.front())) return false;
    steps.erase(steps.begin());
    return true;
  };
  const auto type_is = [](const char* type) {
    return [type](const Json& step) { return type_of(step) == type; };
  };
  if (!steps.empty() && type_of(steps.front()) == "Precompiled") {
    const auto map =
        from_base64(value_or<std::string>(steps.front(), "precompiled_charsmap", ""));
    refuse_unless(map.has_value(), "a precompiled_charsmap that is no base64",
                  "copy the file again");
    model_.character_map = *map;
    steps.erase(steps.begin());
  }
  model_.adds_space_in_front = false;
  const bool is_prepended = take([](const Json& step) {
    return type_of(step) == "Prepend" &&
           value_or<std::string>(step, "prepend", "") == kSpaceMark;
  });
  marks_spaces_ = take([](const Json& step) {
    return is_replace(step, "String", " ") && content_of(step) == kSpaceMark;
  });
  if (!marks_spaces_ && take(type_is("Strip"))) {
    strips_spaces_ = take([](const Json& step) {
      return is_replace(step, "Regex", " {2,}") &&
             (content_of(step) == kSpaceMark || content_of(step) == " ");
    });
    refuse_unless(strips_spaces_, "a Strip without a Replace of \" {2,}\" behind it",
                  "both together are");
  }
  refuse_unless(
      steps.empty() && is_prepended <= marks_spaces_,
      "the normalizer " + io::json_excerpt(entry, 200),
      "Precompiled is, with Strip and Replace of \" {2,}\" behind it; or Prepend and "
      "Replace of spaces by \u2581. Give the SentencePiece model (.model) where there is "
      "one");
  model_.adds_space_in_front = is_prepended;
}

void PieceJson::read_pre_tokenizer() {
  const Json entry = document_.value("pre_tokenizer", Json());
  std::vector<Json> steps = steps_of(entry, "pretokenizers");
  model_.removes_extra_spaces = strips_spaces_;
  // After all spaces are marked there is none to split at.
  if (marks_spaces_ && steps.size() == 1 && type_of(steps[0]) == "Split" &&
      value_or(steps[0], "pattern", Json()) == Json({{"String", " "}})) {
    steps.clear();
  }
  if (marks_spaces_ && steps.empty()) return;
  const bool is_split_at_spaces =
      !steps.empty() && type_of(steps.front()) == "WhitespaceSplit";
  if (is_split_at_spaces) steps.erase(steps.begin());
  refuse_unless(
      !marks_spaces_ && steps.size() == 1 && type_of(steps[0]) == "Metaspace",
      "the pre_tokenizer " + io::json_excerpt(entry, 200),
      "Metaspace is, with or without WhitespaceSplit in front of it; or none where the "
      "normalizer marks spaces");
  read_metaspace(steps[0], is_split_at_spaces);
}

void PieceJson::read_metaspace(const Json& step, bool is_split_at_spaces) {
  refuse_unless(value_or(step, "replacement", std::string(kSpaceMark)) == kSpaceMark,
                "a Metaspace with another mark than \u2581", "\u2581 is");
  std::string scheme = value_or<std::string>(step, "prepend_scheme", "");
  if (scheme.empty())
    scheme = value_or(step, "add_prefix_space", true) ? "always" : "never";
  const bool is_known = scheme == "always" || scheme == "first" || scheme == "never";
  model_.removes_extra_spaces = is_split_at_spaces || strips_spaces_;
  refuse_unless(is_known && !(is_split_at_spaces && scheme != "always") &&
                    !(strips_spaces_ && scheme == "never"),
                "a Metaspace with the prepend_scheme '" + scheme + "' here", "always is");
  model_.adds_space_in_front = scheme != "never";
  if (scheme == "first") front_ = FrontSpace::at_front;
  if (scheme == "always" && !model_.removes_extra_spaces) {
    front_ = FrontSpace::unless_there;
  }
  splits_words_ = is_split_at_spaces || value_or(step, "split", true);
}

void PieceJson::add_piece(const std::string& text, float score) {
  Piece piece = {text, score, Kind::normal};
  if (model_.byte_fallback && byte_of_piece(text) >= 0) piece.kind = Kind::byte;
  // These are looked for before the model gets a text.
  if (added_.contains(text)) piece.kind = Kind::control;
  model_.pieces.push_back(std::move(piece));
}

void PieceJson::set_unknown(std::size_t id) {
  refuse_unless(id < model_.pieces.size(), "a model without a token for unknown text",
                "one with it is");
  model_.pieces[id].kind = Kind::unknown;
}

void PieceJson::read_unigram() {
  model_.algorithm = SentencePieceModel::Algorithm::unigram;
  model_.byte_fallback = value_or(model_json_, "byte_fallback", false);
  for (const Json& entry : model_json_["vocab"]) {
    TRIREME_REQUIRE_INPUT(entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
                              entry[1].is_number(),
                          "tokenizer file '{}': piece {} is {}, expected [\"a\", -1.5]",
                          name_, model_.pieces.size(), io::json_excerpt(entry));
    add_piece(entry[0].get<std::string>(), entry[1].get<float>());
  }
  const Json id = value_or(model_json_, "unk_id", Json());
  set_unknown(id.is_null() ? model_.pieces.size() : checked_id(name_, "unk_id", id));
}

void PieceJson::read_bpe() {
  model_.algorithm = SentencePieceModel::Algorithm::bpe;
  model_.byte_fallback = value_or(model_json_, "byte_fallback", false);
  refuse_unless(value_or(model_json_, "dropout", Json()).is_null(), "dropout",
                "a model without it is");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_unless(value_or<std::string>(model_json_, key, "").empty(), key,
                  "a model without it is");
  }
  refuse_unless(model_.byte_fallback || value_or(model_json_, "fuse_unk", false),
                "a BPE without fuse_unk and byte_fallback", "one with either is");
  const std::vector<std::string> tokens = vocabulary_of(name_, model_json_["vocab"]);
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    refuse_unless(!tokens[id].empty(), fmt::format("no token of the id {}", id),
                  "a vocabulary without gaps is");
    add_piece(tokens[id], 0.0f);
  }
  const auto unknown = value_or<std::string>(model_json_, "unk_token", "");
  const auto found = std::ranges::find(tokens, unknown);
  set_unknown(static_cast<std::size_t>(found - tokens.begin()));
  score_merges();
}

// "a b", or ["a", "b"].
std::pair<std::string, std::string> PieceJson::merge_of(const Json& entry) const {
  if (entry.is_string()) {
    const auto text = entry.get<std::string>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
             entry[1].is_string()) {
    return {entry[0].get<std::string>(), entry[1].get<std::string>()};
  }
  throw InputError(fmt::format(
      "tokenizer file '{}': a merge is {}, expected \"a b\" or [\"a\", \"b\"]", name_,
      io::json_excerpt(entry)));
}

// The piece that is merged first has the highest score.
void PieceJson::score_merges() {
  std::unordered_map<std::string_view, std::size_t> id_of;
  for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
    id_of.emplace(model_.pieces[id].text, id);
  }
  constexpr const char* kFix =
      "those of a SentencePiece model are. Give the model itself (.model)";
  std::vector<std::size_t> merges_of(model_.pieces.size());
  std::size_t last = model_.pieces.size();
  float score = 0.0f;
  for (const Json& entry : value_or(model_json_, "merges", Json::array())) {
    const auto [left, right] = merge_of(entry);
    const auto found = id_of.find(left + right);
    TRIREME_REQUIRE_INPUT(
        found != id_of.end() && id_of.contains(left) && id_of.contains(right),
        "tokenizer file '{}': the merge '{}' '{}' has a token that the "
        "vocabulary does not have",
        name_, left, right);
    const std::size_t id = found->second;
    if (model_.pieces[id].kind != Kind::normal) continue;
    refuse_unless(id == last || merges_of[id] == 0,
                  fmt::format("merges of the token '{}' in two places", left + right),
                  kFix);
    if (id != last) model_.pieces[id].score = score -= 1.0f;
    last = id;
    ++merges_of[id];
  }
  for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
    Piece& piece = model_.pieces[id];
    if (piece.kind != Kind::normal) continue;
    std::size_t ways = 0;
    bool is_character = true;
    for (std::size_t at = 1; at < piece.text.size(); ++at) {
      if ((static_cast<unsigned char>(piece.text[at]) & 0xC0) == 0x80) continue;
      is_character = false;
      ways += id_of.contains(piece.text.substr(0, at)) &&
                      id_of.contains(piece.text.substr(at))
                  ? 1
                  : 0;
    }
    refuse_unless(merges_of[id] == ways,
                  fmt::format("{} of the token '{}', which is made of two others in {}",
                              format_plural(merges_of[id], "merge"), piece.text,
                              format_plural(ways, "way")),
                  kFix);
    // Nothing becomes it.
    if (!is_character && ways == 0) piece.kind = Kind::unused;
  }
}

void PieceJson::check_words() const {
  for (const Piece& piece : model_.pieces) {
    if (piece.kind != Kind::normal) continue;
    refuse_unless(piece.text.find(kSpaceMark, 1) == std::string::npos,
                  fmt::format("the token '{}', which no word has,", piece.text),
                  "a Metaspace with split: false is");
  }
}

// Line ends and tabs are spaces to Hugging Face, and to the library where the map makes
// them some.
void PieceJson::check_spaces() const {
  for (const char* space : {"\n", "\t", "\r"}) {
    refuse_unless(mapped(model_.character_map, space) == " ",
                  "removal of white space that the normalizer does not make spaces",
                  "with Precompiled of nmt_nfkc it is");
  }
}

}  // namespace

bool is_bpe_on_characters(const Json& document) {
  const std::vector<Json> steps =
      steps_of(document.value("pre_tokenizer", Json()), "pretokenizers");
  const auto has = [&](const char* type) {
    return std::ranges::any_of(steps,
                               [&](const Json& step) { return type_of(step) == type; });
  };
  return has("Metaspace") ||
         (value_or(document["model"], "byte_fallback", false) && !has("ByteLevel"));
}

std::shared_ptr<const TokenModel> sentence_piece_of(const std::string& name,
                                                    const Json& document) {
  return PieceJson(name, document).read();
}

}  // namespace trireme::data

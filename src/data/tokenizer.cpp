// data/tokenizer.cpp — see tokenizer.hpp; the readers of files are in
// tokenizer_files.cpp.
//
// Encoding has three steps: what is not valid UTF-8 is repaired, added tokens are cut out
// of the text, and what is left is encoded by a coder of the model. What a tokenizer
// holds never changes; caches and buffers belong to an Encoder.
#include "data/tokenizer.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace trireme::data {
namespace {

struct SpecialTexts {
  const char* name;
  std::span<const std::string_view> texts;  // the first one that a tokenizer has counts
};

SpecialTexts texts_of(Special special) {
  static constexpr std::string_view kEnd[] = {
      "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]"};
  static constexpr std::string_view kPadding[] = {"[PAD]", "<pad>"};
  static constexpr std::string_view kUnknown[] = {"[UNK]", "<unk>"};
  static constexpr std::string_view kClassify[] = {"[CLS]"};
  static constexpr std::string_view kSeparate[] = {"[SEP]"};
  static constexpr std::string_view kMask[] = {"[MASK]", "<mask>"};
  switch (special) {
    case Special::end_of_document:
      return {"an end-of-document token", kEnd};
    case Special::padding:
      return {"a token for padding", kPadding};
    case Special::unknown:
      return {"a token for what is unknown", kUnknown};
    case Special::classify:
      return {"a token for the front of a sample", kClassify};
    case Special::separate:
      return {"a token that separates segments", kSeparate};
    case Special::mask:
      return {"a token that masks others", kMask};
  }
  throw Error("texts_of: no Special");
}

// "a, b or c".
std::string alternatives(std::span<const std::string_view> texts) {
  std::string list(texts[0]);
  for (std::size_t i = 1; i < texts.size(); ++i) {
    list += i + 1 < texts.size() ? ", " : " or ";
    list += texts[i];
  }
  return list;
}

TokenId size_with(TokenId tokens, const std::vector<AddedToken>& added) {
  TokenId size = tokens;
  for (const AddedToken& token : added) size = std::max(size, token.id + 1);
  return size;
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const TokenModel> model,
                     std::vector<AddedToken> added, TokenizerFiles files)
    : model_(std::move(model)),
      added_(std::move(added)),
      vocabulary_size_(size_with(model_->size(), added_)),
      files_(std::move(files)) {}

std::optional<TokenId> Tokenizer::find_special(Special special) const {
  for (const std::string_view text : texts_of(special).texts) {
    const auto found = std::ranges::find(added_, text, &AddedToken::text);
    if (found != added_.end()) return found->id;
  }
  return std::nullopt;
}

TokenId Tokenizer::special(Special special) const {
  const std::optional<TokenId> id = find_special(special);
  if (id) return *id;
  const auto [name, texts] = texts_of(special);
  throw InputError(
      fmt::format("the tokenizer ({}) lacks {}: none of its added tokens is {}. Add one "
                  "of them to its "
                  "\"added_tokens\"",
                  files_.empty() ? "without files" : files_.begin()->first, name,
                  alternatives(texts)));
}

std::string sentinel_text(std::int64_t number) {
  return fmt::format("{}{}>", kSentinelBegin, number);
}

Sentinels Tokenizer::sentinels() const {
  Sentinels found;
  for (std::int64_t i = 0;; ++i) {
    const auto token = std::ranges::find(added_, sentinel_text(i), &AddedToken::text);
    if (token == added_.end()) return found;
    if (i == 0) found.first = token->id;
    TRIREME_REQUIRE_INPUT(
        token->id + i == found.first,
        "the tokenizer's {} has the id {}, and <extra_id_0> {}: those of sentinels go "
        "down by one",
        token->text, token->id, found.first);
    ++found.count;
  }
}

bool Tokenizer::can_cut_before_space() const {
  const auto has_space = [](const AddedToken& token) {
    return token.text.find_first_of(" \n\r") != std::string::npos;
  };
  return model_->can_cut_before_space() && std::ranges::none_of(added_, has_space);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> ids;
  Encoder(*this).encode(text, ids);
  return ids;
}

std::string_view Tokenizer::bytes_of(TokenId id) const {
  TRIREME_REQUIRE_INPUT(id < vocabulary_size_,
                        "token id {} is outside the tokenizer's vocabulary of {}", id,
                        vocabulary_size_);
  if (id < model_->size() && !model_->bytes_of(id).empty()) return model_->bytes_of(id);
  const auto found = std::ranges::find(added_, id, &AddedToken::id);
  if (found != added_.end()) return found->text;
  return {};  // an id that the files leave out
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes.append(bytes_of(id));
  if (model_->drops_first_space() && bytes.starts_with(' ')) bytes.erase(0, 1);
  return bytes;
}

Encoder::Encoder(const Tokenizer& tokenizer, AddedTokens added_tokens)
    : coder_(tokenizer.model().coder()) {
  if (added_tokens == AddedTokens::as_text) return;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    added_.push_back(&token);
    starts_added_[static_cast<std::uint8_t>(token.text[0])] = true;
  }
  std::ranges::stable_sort(added_, std::greater(),
                           [](const AddedToken* token) { return token->text.size(); });
}

bool Encoder::find_added(std::string_view text, std::size_t from, std::size_t& at,
                         const AddedToken*& token) const {
  if (added_.empty()) return false;
  const char first = added_[0]->text[0];
  const bool one_start =
      std::count(starts_added_.begin(), starts_added_.end(), true) == 1;
  for (at = from; at < text.size(); ++at) {
    if (one_start) {
      const void* found = std::memchr(text.data() + at, first, text.size() - at);
      if (found == nullptr) return false;
      at = static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
    } else if (!starts_added_[static_cast<std::uint8_t>(text[at])]) {
      continue;
    }
    for (const AddedToken* candidate : added_) {
      if (text.compare(at, candidate->text.size(), candidate->text) == 0) {
        token = candidate;
        return true;
      }
    }
  }
  return false;
}

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids) {
  encode_valid(valid_utf8(text, repaired_, replaced_), ids, nullptr);
}

void Encoder::encode(std::string_view text, std::vector<TokenId>& ids,
                     std::vector<std::size_t>& begins) {
  TRIREME_REQUIRE(valid_utf8_prefix(text) == text.size(),
                  "the text is no UTF-8 at byte {}, and places are those of a text that "
                  "was repaired before",
                  valid_utf8_prefix(text));
  encode_valid(text, ids, &begins);
}

void Encoder::encode_valid(std::string_view text, std::vector<TokenId>& ids,
                           std::vector<std::size_t>* begins) {
  std::size_t begin = 0;
  std::size_t at = 0;
  const AddedToken* token = nullptr;
  while (find_added(text, begin, at, token)) {
    encode_plain(text, begin, at, ids, begins);
    ids.push_back(token->id);
    if (begins != nullptr) begins->push_back(at);
    ++added_found_[token->id];
    begin = at + token->text.size();
  }
  encode_plain(text, begin, text.size(), ids, begins);
}

void Encoder::encode_plain(std::string_view text, std::size_t begin, std::size_t end,
                           std::vector<TokenId>& ids, std::vector<std::size_t>* begins) {
  if (begin == end) return;
  const std::size_t known = begins != nullptr ? begins->size() : 0;
  coder_->set_at_front(begin == 0);
  coder_->encode(text.substr(begin, end - begin), ids, begins);
  if (begins == nullptr) return;
  for (std::size_t i = known; i < begins->size(); ++i) (*begins)[i] += begin;
}

std::string StreamDecoder::next(TokenId id) {
  pending_.append(tokenizer_.bytes_of(id));
  const std::size_t keep = unfinished_suffix(pending_);
  std::string text;
  append_repaired(std::string_view(pending_).substr(0, pending_.size() - keep), text);
  pending_.erase(0, pending_.size() - keep);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_repaired(pending_, text);
  pending_.clear();
  return text;
}

}  // namespace trireme::data

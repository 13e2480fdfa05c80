// data/tokenizer.cpp — see tokenizer.hpp; the readers of files are in
// tokenizer_files.cpp.
//
// Encoding has three steps: added tokens are cut out of the text, what is left is cut
// into pieces by the pre-tokenizer, and each piece is merged by BPE. The table of bytes
// (byte_alphabet.hpp) stands between files, in which bytes are written as visible
// characters, and this code, which only knows bytes. What a tokenizer holds never
// changes; caches and buffers belong to an Encoder.
#include "data/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace trireme::data {

TokenId Tokenizer::end_of_document() const {
  constexpr std::array<std::string_view, 5> names = {"<|endoftext|>", "<|end_of_text|>",
                                                     "</s>", "<eos>", "<|eot_id|>"};
  for (const std::string_view name : names) {
    for (const AddedToken& token : added_) {
      if (token.text == name) return token.id;
    }
  }
  throw InputError(
      "the tokenizer has no end-of-document token: none of its added tokens is "
      "<|endoftext|>, <|end_of_text|>, </s>, <eos> or <|eot_id|>. Add one of them to "
      "its \"added_tokens\"");
}

bool Tokenizer::can_cut_before_space() const {
  const auto has_space = [](const AddedToken& token) {
    return token.text.find_first_of(" \n") != std::string::npos;
  };
  return pre_tokenizer_.can_cut_before_space() && !space_in_front_ &&
         std::none_of(added_.begin(), added_.end(), has_space);
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
  for (const AddedToken& token : added_) {
    if (token.id == id) return token.text;
  }
  return {};  // an id that the files leave out
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids) const {
  std::string bytes;
  for (const TokenId id : ids) bytes.append(bytes_of(id));
  return bytes;
}

Encoder::Encoder(const Tokenizer& tokenizer, AddedTokens added_tokens)
    : tokenizer_(tokenizer),
      bpe_(tokenizer.model()),
      scanner_(tokenizer.pre_tokenizer()) {
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

void Encoder::encode(std::string_view given, std::vector<TokenId>& ids) {
  const std::string_view text = valid_utf8(given, repaired_, replaced_);
  std::size_t begin = 0;
  std::size_t at = 0;
  const AddedToken* token = nullptr;
  while (find_added(text, begin, at, token)) {
    encode_plain(text.substr(begin, at - begin), ids);
    ids.push_back(token->id);
    ++added_found_;
    begin = at + token->text.size();
  }
  encode_plain(text.substr(begin), ids);
}

void Encoder::encode_plain(std::string_view text, std::vector<TokenId>& ids) {
  if (text.empty()) return;
  if (tokenizer_.adds_space_in_front() && text[0] != ' ') {
    spaced_.assign(1, ' ').append(text);
    text = spaced_;
  }
  scanner_.start(text);
  std::string_view piece;
  while (scanner_.next(piece)) bpe_.encode(piece, ids);
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

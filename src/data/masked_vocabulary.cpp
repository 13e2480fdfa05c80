// data/masked_vocabulary.cpp — see masked_vocabulary.hpp.
#include "data/masked_vocabulary.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "data/token_model.hpp"

namespace trireme::data {

namespace {

constexpr std::pair<Special, const char*> kNeeded[] = {{Special::padding, "[PAD]"},
                                                       {Special::classify, "[CLS]"},
                                                       {Special::separate, "[SEP]"},
                                                       {Special::mask, "[MASK]"}};

void require_needed(const Tokenizer& tokenizer) {
  std::string missing;
  for (const auto& [special, text] : kNeeded) {
    if (tokenizer.find_special(special)) continue;
    missing += (missing.empty() ? "no " : ", no ") + std::string(text);
  }
  TRIREME_REQUIRE_INPUT(
      missing.empty(),
      "its tokenizer ({}) has {}, which the samples of a bert model are made with: make "
      "the corpus with a tokenizer that has them (trireme tokenize --tokenizer "
      "vocab.txt), or add them to the \"added_tokens\" of its tokenizer.json",
      tokenizer.model().description(), missing);
}

}  // namespace

MaskedVocabulary masked_vocabulary(const Tokenizer& tokenizer, TokenId size,
                                   TokenId end_of_document) {
  require_needed(tokenizer);
  const auto id_of = [&](Special special) {
    return static_cast<std::int32_t>(tokenizer.special(special));
  };
  const TokenModel& model = tokenizer.model();
  MaskedVocabulary vocabulary{
      .padding = id_of(Special::padding),
      .classify = id_of(Special::classify),
      .separate = id_of(Special::separate),
      .mask = id_of(Special::mask),
      .end_of_document = static_cast<std::int32_t>(end_of_document),
      .begins_word = std::vector<std::uint8_t>(size, 1),
      .is_structural = std::vector<std::uint8_t>(size, 0),
      .ordinary = {}};
  std::vector<std::uint8_t> is_added(size, 0);
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.id < size) is_added[token.id] = 1;
  }
  for (TokenId id = 0; id < std::min(size, model.size()); ++id) {
    vocabulary.begins_word[id] = model.begins_word(id) ? 1 : 0;
    if (is_added[id] != 0 || model.bytes_of(id).empty()) continue;
    vocabulary.ordinary.push_back(static_cast<std::int32_t>(id));
  }
  for (const std::int32_t id :
       {vocabulary.padding, vocabulary.classify, vocabulary.separate, vocabulary.mask,
        vocabulary.end_of_document}) {
    vocabulary.is_structural.at(static_cast<std::size_t>(id)) = 1;
  }
  TRIREME_REQUIRE_INPUT(!vocabulary.ordinary.empty(),
                        "its tokenizer has no tokens but added ones");
  return vocabulary;
}

}  // namespace trireme::data

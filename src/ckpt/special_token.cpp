// ckpt/special_token.cpp — see special_token.hpp.
#include "ckpt/special_token.hpp"

#include "base/error.hpp"
#include "base/words.hpp"

namespace trireme::ckpt {

const char* attribute_of(data::Special special) {
  switch (special) {
    case data::Special::end_of_document:
      return "end_of_document";
    case data::Special::padding:
      return "padding";
    default:
      throw Error("attribute_of: a token that checkpoints do not name");
  }
}

std::optional<data::TokenId> special_token(
    const TrainingState& state, const std::optional<data::Tokenizer>& tokenizer,
    data::Special special) {
  const auto it = state.tokenizer_attributes.find(attribute_of(special));
  if (it != state.tokenizer_attributes.end()) {
    if (const auto id = number_in<data::TokenId>(it->second)) return id;
  }
  return tokenizer ? tokenizer->find_special(special) : std::nullopt;
}

}  // namespace trireme::ckpt

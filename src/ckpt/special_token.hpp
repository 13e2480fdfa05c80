// ckpt/special_token.hpp — tokens that have a part in training, as a checkpoint knows
// them: its attributes, and for what these leave out its tokenizer.
#ifndef TRIREME_CKPT_SPECIAL_TOKEN_HPP_
#define TRIREME_CKPT_SPECIAL_TOKEN_HPP_

#include <optional>

#include "ckpt/training_state.hpp"
#include "data/tokenizer.hpp"

namespace trireme::ckpt {

// The name of a tokenizer's attribute in a checkpoint.
const char* attribute_of(data::Special special);

// None: neither says so.
std::optional<data::TokenId> special_token(
    const TrainingState& state, const std::optional<data::Tokenizer>& tokenizer,
    data::Special special);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_SPECIAL_TOKEN_HPP_

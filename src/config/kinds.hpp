// config/kinds.hpp — what a kind of model means for a deck: the keys that it has, and the
// defaults that are others' in others.
//
// A key that is not in the table of kinds.cpp is every kind's. One that is not the deck's
// kind's is an error where it is given, and is not written into the resolved deck.
#ifndef TRIREME_CONFIG_KINDS_HPP_
#define TRIREME_CONFIG_KINDS_HPP_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"

namespace trireme::config {

std::vector<ModelKind> all_kinds();
// The kinds that have the key.
std::vector<ModelKind> kinds_with(std::string_view key);
bool has_key(ModelKind kind, std::string_view key);
// "bert and t5"
std::string kinds_text(const std::vector<ModelKind>& kinds);

// Whether the deck, or who asks, has a value for the key.
using Given = std::function<bool(const char* key)>;
// Fills in all that is not given of the sections model and data, by the kind and by the
// keys that others follow.
void fill_model_defaults(Deck& deck, const Given& given);

// Tokens of a sample that are not text: BERT's [CLS] and one [SEP] behind each segment.
index_t special_tokens(const Deck& deck);
// Positions that T5's decoder needs for the longest corrupted window whose source fits
// into the encoder's. At least what the shortest needs.
index_t target_positions(const Deck& deck);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_KINDS_HPP_

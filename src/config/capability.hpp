// config/capability.hpp — what this version can train: one list, of which training and
// job scripts refuse what is missing, a dry run says it, docs/deck.md marks it "not yet",
// and the model asserts that it has the layers.
//
// Keys that are not in the list are trained with every value that a deck may give them.
#ifndef TRIREME_CONFIG_CAPABILITY_HPP_
#define TRIREME_CONFIG_CAPABILITY_HPP_

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/deck.hpp"
#include "config/deck_error.hpp"
#include "config/key_table.hpp"

namespace trireme::config {

// What can be told, without training, of a deck with a value that is not trained yet.
enum class Told {
  nothing,  // how many parameters it has is not known either
  size,     // parameters and FLOPs, but not what a rank's memory holds
  memory    // all that a dry run says
};

// One key's values, in models of one kind or of all. A key without an entry for
// a kind is trained there with every value.
struct Capability {
  std::string key;
  // Its values that training has, the first one's own,
  std::vector<std::string> trained = {};
  std::string same_as = {};  // or: as much as this key
  std::string reason;        // why no others, in half a sentence
  Told told = Told::memory;  // of its other values, but these:
  std::vector<std::string> nothing_told = {};
  std::optional<ModelKind> kind = {};  // none: of all
};
const std::vector<Capability>& capabilities();

// Whether training has this value of the key in models of a kind, as far as the key goes:
// whether the kind is trained at all, "model.kind" says. Not for keys with `same_as`.
bool is_trained(ModelKind kind, std::string_view key, std::string_view value);
// A key's values as a page shows them: "gpt, bert (not yet), t5 (not yet)". Of those that
// not all kinds are trained with, the kinds that are: "relu (bert and t5)".
std::string mark_not_yet(const KeyInfo& info);

// A value of a deck that this version cannot train.
struct NotTrained {
  std::string key, value, reason;
  Told told = Told::memory;
};
// Keys in `bad` have an error already: what they say is not looked at.
std::vector<NotTrained> not_trained(const Deck& deck,
                                    const std::set<std::string>& bad = {});
// What is not trained as errors, for who is about to train; a deck without a corpus is
// one, too.
std::vector<DeckError> errors_of_training(const Deck& deck,
                                          const std::set<std::string>& bad = {});

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_CAPABILITY_HPP_

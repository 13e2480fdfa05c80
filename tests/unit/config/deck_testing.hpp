// Helpers of the deck's tests: a small deck that is right, and errors of one that is not.
#ifndef TRIREME_TESTS_UNIT_CONFIG_DECK_TESTING_HPP_
#define TRIREME_TESTS_UNIT_CONFIG_DECK_TESTING_HPP_

#include <string>
#include <vector>

#include "config/load.hpp"

namespace trireme::config {

inline const char* const kSmall =
    "model: {layers: 4, hidden: 64, heads: 4, sequence: 32, vocab: 211}\n"
    "data: {train: corpus.h5}\n";

inline std::vector<DeckError> errors_of(const std::string& text,
                                        const LoadOptions& options = {}) {
  try {
    parse(text, "test.yaml", options);
  } catch (const DeckErrors& errors) {
    return errors.errors();
  }
  return {};
}

// The small deck with overrides.
inline Deck small_with(const std::vector<std::string>& overrides, int ranks = 0) {
  return parse(kSmall, "test.yaml", {overrides, "", ranks});
}
inline std::vector<DeckError> errors_with(const std::vector<std::string>& overrides,
                                          int ranks = 0) {
  return errors_of(kSmall, {overrides, "", ranks});
}

}  // namespace trireme::config

#endif  // TRIREME_TESTS_UNIT_CONFIG_DECK_TESTING_HPP_

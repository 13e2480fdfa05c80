// config/deck_error.hpp — what is wrong with a deck: all of it at once.
#ifndef TRIREME_CONFIG_DECK_ERROR_HPP_
#define TRIREME_CONFIG_DECK_ERROR_HPP_

#include <string>
#include <vector>

#include "base/error.hpp"

namespace trireme::config {

struct DeckError {
  // "model.heads", or the option that is wrong ("--resume"); empty where the file itself
  // is.
  std::string key;
  std::string place;    // "inputs/gpt2.yaml:12", "--set", "default"; empty: an option
  std::string value;    // as given; empty where there is none
  std::string what;     // what is wrong
  std::string allowed;  // what would be right
  std::string fix;      // the nearest thing to write instead; may be empty
};

// For people: one block per error. `file`: what kind of file has them.
std::string format_errors(const std::vector<DeckError>& errors,
                          const std::string& file = "deck");

// Thrown by the loader; what() is format_errors().
class DeckErrors : public InputError {
 public:
  explicit DeckErrors(std::vector<DeckError> errors, const std::string& file = "deck")
      : InputError(format_errors(errors, file)), errors_(std::move(errors)) {}
  const std::vector<DeckError>& errors() const { return errors_; }

 private:
  std::vector<DeckError> errors_;
};

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_DECK_ERROR_HPP_

// config/deck_error.cpp — see deck_error.hpp.
#include "config/deck_error.hpp"

namespace trireme::config {

std::string format_errors(const std::vector<DeckError>& errors) {
  std::string text = errors.size() == 1
                         ? std::string("the deck has 1 error")
                         : fmt::format("the deck has {} errors", errors.size());
  for (const DeckError& error : errors) {
    text += "\n\n  ";
    text += error.key.empty() ? std::string("deck") : error.key;
    if (!error.value.empty()) text += ": " + error.value;
    if (!error.place.empty()) text += "   (" + error.place + ")";
    text += "\n    " + error.what;
    if (!error.allowed.empty()) text += "\n    allowed: " + error.allowed;
    if (!error.fix.empty()) text += "\n    nearest: " + error.fix;
  }
  return text;
}

}  // namespace trireme::config

// config/deck_error.cpp — see deck_error.hpp.
#include "config/deck_error.hpp"

#include <algorithm>

#include "base/plural.hpp"

namespace trireme::config {

namespace {

bool is_of_option(const DeckError& error) {
  return error.key.starts_with("--");
}

// "the deck has 2 errors", "the deck and the options have 3 errors".
std::string headline(const std::vector<DeckError>& errors, const std::string& file) {
  const auto of_options = std::count_if(errors.begin(), errors.end(), is_of_option);
  const bool both = of_options > 0 && of_options < std::ssize(errors);
  std::string who = "the " + file + " has";
  if (of_options > 0)
    who = both ? "the " + file + " and the options have" : "the options have";
  return fmt::format("{} {}", who, format_plural(std::ssize(errors), "error"));
}

// Lines behind the first stand below it.
std::string indented(const std::string& text) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

}  // namespace

std::string format_errors(const std::vector<DeckError>& errors, const std::string& file) {
  std::string text = headline(errors, file);
  for (const DeckError& error : errors) {
    text += "\n\n  ";
    text += error.key.empty() ? file : error.key;
    if (!error.value.empty()) text += ": " + error.value;
    if (!error.place.empty()) text += "   (" + error.place + ")";
    text += "\n    " + indented(error.what);
    if (!error.allowed.empty()) text += "\n    allowed: " + error.allowed;
    if (!error.fix.empty()) text += "\n    nearest: " + error.fix;
  }
  return text;
}

}  // namespace trireme::config

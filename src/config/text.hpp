// config/text.hpp — values as text and back: numbers, lengths, times, quoting, and which
// of several words was meant.
#ifndef TRIREME_CONFIG_TEXT_HPP_
#define TRIREME_CONFIG_TEXT_HPP_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"

namespace trireme::config {

// Whole numbers, 2e9 too; nothing where the text is not one or does not fit 64 bits.
std::optional<index_t> parse_integer(std::string_view text);
// Reads a finite number; none for anything else.
std::optional<double> parse_number(std::string_view text);

// A value, or why there is none and what to write instead.
template <class T>
struct Parsed {
  std::optional<T> value;
  std::string what, fix;
};
Parsed<Length> parse_length(std::string_view text);
// Reads a time as seconds: "90s", "5m", "1h30m", "2d".
Parsed<double> parse_time(std::string_view text);

std::string to_text(const Length& length);  // 100, "51200 samples"
std::string time_text(double seconds);      // "10m"
std::string number_text(double value);      // shortest that reads back as the same
// A text as a YAML scalar: plain where that reads back as this text, else in double
// quotes.
std::string yaml_text(const std::string& text);

// The word most like `word` that is near enough to be meant; empty where none is.
std::string nearest_word(std::string_view word,
                         const std::vector<std::string_view>& words);

}  // namespace trireme::config

#endif  // TRIREME_CONFIG_TEXT_HPP_

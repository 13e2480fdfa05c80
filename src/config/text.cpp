// config/text.cpp — see text.hpp.
//
// Every value is written so that reading it gives the same bits back, because decks
// travel between ranks and starts as text. Numbers are written with the fewest digits
// that do this: 0.1 and not 0.1000000000000000055. Reading is strict: what follows a
// number without being its unit is an error and never ignored.
#include "config/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/types.hpp"
#include "base/words.hpp"

namespace trireme::config {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

// Splits "2e9 tokens" and "2e9tokens" into number and unit.
std::pair<std::string_view, std::string_view> split_unit(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const char c = text[end];
    const bool digit = c >= '0' && c <= '9';
    const bool exponent = (c == 'e' || c == 'E') && end > 0 && end + 1 < text.size() &&
                          (text[end + 1] == '+' || text[end + 1] == '-' ||
                           (text[end + 1] >= '0' && text[end + 1] <= '9'));
    const bool sign = c == '+' || c == '-';
    if (!digit && !exponent && !sign && c != '.') break;
    ++end;
  }
  return {trim(text.substr(0, end)), trim(text.substr(end))};
}

bool is_time_unit(std::string_view unit) {
  return unit == "s" || unit == "m" || unit == "h" || unit == "d";
}

double seconds_in(char unit) {
  return unit == 's' ? 1.0 : unit == 'm' ? 60.0 : unit == 'h' ? 3600.0 : 86400.0;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  text = without_plus(text);
  const auto value = number_in<double>(text);
  if (value && !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<index_t> parse_integer(std::string_view text) {
  text = without_plus(text);
  if (const auto value = number_in<index_t>(text)) return value;
  const auto number = parse_number(text);
  // Beyond 2^53 a floating-point literal no longer says which integer is meant.
  if (!number || std::floor(*number) != *number ||
      std::abs(*number) > 9007199254740992.0) {
    return std::nullopt;
  }
  return static_cast<index_t>(*number);
}

Parsed<Length> parse_length(std::string_view text) {
  Parsed<Length> parsed;
  const auto [number, unit] = split_unit(trim(text));
  const auto amount = parse_integer(number);
  if (!amount) {
    const auto fraction = parse_number(number);
    parsed.what =
        "is not a length: a whole number, alone or with steps, samples or tokens";
    if (fraction && std::abs(*fraction) < 9e18) {
      parsed.fix = fmt::format("{} {}", std::llround(*fraction), unit);
    }
    return parsed;
  }
  Length length(*amount);
  if (unit.empty() || unit == "step" || unit == "steps") {
    length.unit = LengthUnit::steps;
  } else if (unit == "sample" || unit == "samples") {
    length.unit = LengthUnit::samples;
  } else if (unit == "token" || unit == "tokens") {
    length.unit = LengthUnit::tokens;
  } else {
    std::string near = nearest_word(unit, {"steps", "samples", "tokens"});
    parsed.what =
        is_time_unit(unit)
            ? fmt::format("is a time; a length is in steps, samples or tokens")
            : fmt::format("has the unit '{}'; a length is in steps, samples or tokens",
                          unit);
    parsed.fix = fmt::format("{} {}", *amount, near.empty() ? "steps" : near);
    return parsed;
  }
  if (length.unit != LengthUnit::steps) length.steps = 0;
  parsed.value = length;
  return parsed;
}

Parsed<double> parse_time(std::string_view text) {
  Parsed<double> parsed;
  parsed.what = "is not a time: a number with s, m, h or d (90s, 10m, 1h30m)";
  double total = 0.0;
  std::string_view rest = trim(text);
  if (const auto plain = parse_number(rest)) {
    parsed.what = "has no unit; a time is written with s, m, h or d";
    parsed.fix = fmt::format("{}s", number_text(*plain));
    return parsed;
  }
  if (rest.empty()) return parsed;
  while (!rest.empty()) {
    const std::size_t end = rest.find_first_not_of("0123456789.");
    if (end == 0 || end == std::string_view::npos) return parsed;
    const auto amount = parse_number(rest.substr(0, end));
    if (!amount) return parsed;
    if (!is_time_unit(rest.substr(end, 1))) {
      std::string_view unit = rest.substr(end);
      if (!unit.empty() && unit[0] == ' ') unit = trim(unit);
      const char first = unit.empty() ? ' ' : unit[0];
      if (is_time_unit(std::string_view(&first, 1))) {
        parsed.fix = fmt::format("{}{}", number_text(*amount), first);
      }
      return parsed;
    }
    if (end + 1 < rest.size() && (rest[end + 1] < '0' || rest[end + 1] > '9')) {
      // "10min", "2hours": the first letter is the unit.
      parsed.fix = fmt::format("{}{}", number_text(*amount), rest[end]);
      return parsed;
    }
    total += *amount * seconds_in(rest[end]);
    rest.remove_prefix(end + 1);
  }
  return {total, "", ""};
}

std::string to_text(const Length& length) {
  return length.unit == LengthUnit::steps
             ? std::to_string(length.amount)
             : fmt::format("{} {}", length.amount, name_of(length.unit));
}

std::string number_text(double value) {
  return fmt::format("{}", value);
}

std::string time_text(double seconds) {
  for (const char unit : {'d', 'h', 'm'}) {
    const double count = seconds / seconds_in(unit);
    if (seconds > 0.0 && std::floor(count) == count &&
        count * seconds_in(unit) == seconds) {
      return fmt::format("{}{}", number_text(count), unit);
    }
  }
  // Times are written without an exponent, as their reader takes digits and a point.
  std::string text = fmt::format("{}", seconds);
  if (text.find('e') != std::string::npos) text = fmt::format("{:.9f}", seconds);
  return text + "s";
}

std::string yaml_text(const std::string& text) {
  static const std::vector<std::string_view> reserved = {"true", "false",  "null", "yes",
                                                         "no",   "on",     "off",  "none",
                                                         "auto", "corpus", "y",    "n"};
  const std::string lower = lower_case(text);
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '/' || c == '-' || c == '+';
  };
  const bool word = !text.empty() && text[0] != '-' && text[0] != '+' && text != "." &&
                    std::all_of(text.begin(), text.end(), plain) &&
                    std::find(reserved.begin(), reserved.end(), lower) == reserved.end();
  if (word && !parse_number(text)) return text;
  std::string quoted = "\"";
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", c);
    } else {
      quoted += static_cast<char>(c);
    }
  }
  return quoted + "\"";
}

std::string nearest_word(std::string_view word,
                         const std::vector<std::string_view>& words) {
  std::string lower = lower_case(word.substr(0, 64));
  std::replace(lower.begin(), lower.end(), '-', '_');
  std::string best;
  int best_distance = 1000;
  for (const std::string_view candidate : words) {
    const std::string other = lower_case(candidate);
    int distance = edit_distance(lower, other);
    // An abbreviation, or the word with something added, is nearer than its length says.
    if (lower.size() >= 2 && (other.find(lower) == 0 || lower.find(other) == 0)) {
      distance = std::min(distance, 1);
    }
    const int limit =
        std::max(1, static_cast<int>(std::max(lower.size(), other.size())) / 3);
    if (distance <= limit && distance < best_distance) {
      best = std::string(candidate);
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace trireme::config

// config/key_readers.cpp — see key_readers.hpp.
//
// A reader takes one value of the YAML tree and returns the problem, if there is one, as
// what is wrong and what to write instead. It knows nothing of keys, lines or files,
// which the caller adds (load.cpp). A scalar is text until its key's reader says what it
// means.
#include "config/key_readers.hpp"

#include <fmt/format.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/types.hpp"
#include "base/words.hpp"
#include "config/paths.hpp"

namespace trireme::config {
namespace {

// The most that a length may be: sums of a few do not overflow.
constexpr index_t kLongest = 1000000000000000000;

// What the key's own reader says to a plain scalar.
using Read = std::function<std::optional<Problem>(const YamlValue&)>;

// The text as a plain scalar where the reader takes it, else what the reader would have.
std::string plain_fix(const YamlValue& value, const Read& read) {
  YamlValue plain = value;
  plain.quoted = false;
  const std::optional<Problem> problem = read(plain);
  return problem ? problem->fix : plain.text;
}

// The problem of a value that is no plain scalar.
std::optional<Problem> want_scalar(const YamlValue& value, const char* wanted,
                                   const Read& read) {
  if (value.is_scalar() && !value.quoted) return std::nullopt;
  if (value.is_scalar()) {
    return Problem{fmt::format("is text in quotes; {} is wanted", wanted),
                   plain_fix(value, read)};
  }
  if (value.is_list() && value.items.size() == 1 && value.items[0].is_scalar()) {
    return Problem{fmt::format("is a list; {} is wanted", wanted),
                   plain_fix(value.items[0], read)};
  }
  return Problem{fmt::format("is {}; {} is wanted", kind_of(value), wanted), ""};
}

}  // namespace

bool says(const YamlValue& value, std::string_view word) {
  return value.is_scalar() && value.text == word;
}

std::string kind_of(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::null:
      return "empty";
    case YamlValue::Kind::scalar:
      return value.quoted ? "text in quotes" : "a single value";
    case YamlValue::Kind::list:
      return "a list";
    case YamlValue::Kind::map:
      return "a section with keys";
  }
  return "";
}

std::string path_value(const std::string& path) {
  return yaml_text(path_text(path));
}

std::string join_words(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::optional<Problem> read_integer(const YamlValue& value, index_t least, index_t most,
                                    index_t& out) {
  const Read read = [&](const YamlValue& plain) {
    index_t ignored = 0;
    return read_integer(plain, least, most, ignored);
  };
  if (auto problem = want_scalar(value, "a whole number", read)) return problem;
  const auto integer = parse_integer(value.text);
  if (!integer) {
    const auto number = parse_number(value.text);
    if (number && std::abs(*number) < 9e18) {
      const auto near =
          std::clamp(static_cast<index_t>(std::llround(*number)), least, most);
      return Problem{"is not a whole number", std::to_string(near)};
    }
    if (number) {
      return Problem{*number < 0 ? "is too small" : "is too large",
                     std::to_string(*number < 0 ? least : most)};
    }
    return Problem{"is not a whole number", ""};
  }
  if (*integer < least || *integer > most) {
    return Problem{*integer < least ? "is too small" : "is too large",
                   std::to_string(std::clamp(*integer, least, most))};
  }
  out = *integer;
  return std::nullopt;
}

std::optional<Problem> read_number(const YamlValue& value, const NumberRange& range,
                                   double& out) {
  const Read read = [&](const YamlValue& plain) {
    double ignored = 0.0;
    return read_number(plain, range, ignored);
  };
  if (auto problem = want_scalar(value, "a number", read)) return problem;
  const auto number = parse_number(value.text);
  if (!number) return Problem{"is not a number", ""};
  const bool below = range.open_below ? *number <= range.least : *number < range.least;
  const bool above = range.open_above ? *number >= range.most : *number > range.most;
  if (below) {
    return Problem{"is too small", range.open_below ? "" : number_text(range.least)};
  }
  if (above) {
    return Problem{"is too large", range.open_above ? "" : number_text(range.most)};
  }
  out = *number;
  return std::nullopt;
}

std::optional<Problem> read_boolean(const YamlValue& value, bool& out) {
  const Read read = [&](const YamlValue& plain) {
    bool ignored = false;
    return read_boolean(plain, ignored);
  };
  if (auto problem = want_scalar(value, "true or false", read)) return problem;
  if (value.text == "true" || value.text == "false") {
    out = value.text == "true";
    return std::nullopt;
  }
  const std::string lower = lower_case(value.text);
  const bool yes = lower == "yes" || lower == "on" || lower == "1" || lower == "true";
  const bool no = lower == "no" || lower == "off" || lower == "0" || lower == "false" ||
                  lower == "none";
  return Problem{"is neither true nor false", yes ? "true" : (no ? "false" : "")};
}

std::optional<Problem> read_text(const YamlValue& value, std::string& out) {
  if (!value.is_scalar())
    return Problem{fmt::format("is {}; text is wanted", kind_of(value)), ""};
  if (value.text.empty()) return Problem{"is empty", ""};
  out = value.text;
  return std::nullopt;
}

std::optional<Problem> read_path(const YamlValue& value, std::string& out) {
  std::string text;
  if (auto problem = read_text(value, text)) return problem;
  auto path = expand_path(text);
  if (!path.value) return Problem{path.what, path.fix};
  out = *path.value;
  return std::nullopt;
}

std::optional<Problem> read_length(const YamlValue& value, index_t least, Length& out) {
  const Read read = [&](const YamlValue& plain) {
    Length ignored;
    return read_length(plain, least, ignored);
  };
  if (auto problem = want_scalar(value, "a length", read)) return problem;
  auto parsed = parse_length(value.text);
  if (!parsed.value) return Problem{parsed.what, parsed.fix};
  if (parsed.value->amount < least) {
    Length nearest = *parsed.value;
    nearest.amount = least;
    return Problem{"is too small", to_text(nearest)};
  }
  if (parsed.value->amount > kLongest) {
    Length nearest = *parsed.value;
    nearest.amount = kLongest;
    return Problem{"is too large", to_text(nearest)};
  }
  out = *parsed.value;
  return std::nullopt;
}

std::optional<Problem> read_time(const YamlValue& value, const std::string& word,
                                 std::optional<double>& out) {
  const Read read = [&](const YamlValue& plain) {
    std::optional<double> ignored;
    return read_time(plain, word, ignored);
  };
  if (auto problem = want_scalar(value, "a time", read)) return problem;
  if (value.text == word) {
    out.reset();
    return std::nullopt;
  }
  auto parsed = parse_time(value.text);
  if (!parsed.value) return Problem{parsed.what, parsed.fix};
  if (*parsed.value <= 0.0) return Problem{"is too small", word};
  constexpr double kLongestTime = 1e9;  // some 30 years
  if (*parsed.value > kLongestTime) return Problem{"is too large", word};
  out = *parsed.value;
  return std::nullopt;
}

std::optional<Problem> read_word(const YamlValue& value,
                                 const std::vector<std::string_view>& words,
                                 std::size_t& out) {
  if (!value.is_scalar()) {
    return Problem{fmt::format("is {}; one word is wanted", kind_of(value)), ""};
  }
  const auto found = std::find(words.begin(), words.end(), value.text);
  if (found == words.end()) {
    return Problem{"is not one of the words this key knows",
                   nearest_word(value.text, words)};
  }
  out = static_cast<std::size_t>(found - words.begin());
  return std::nullopt;
}

}  // namespace trireme::config

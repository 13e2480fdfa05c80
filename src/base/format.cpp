// base/format.cpp — see format.hpp.
//
// Numbers are rounded before their unit is chosen: 999 999 is 1.00M, and not 1000k. Text
// is measured in columns and not in bytes, and what a terminal would obey (escape
// sequences, control characters) is taken out of what others wrote before it is printed.
// Lines are broken between parts and never inside one, so that a command that is shown
// can be copied.
#include "base/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.hpp"

namespace trireme {

namespace {

// Three significant digits; `value` is below 999.5.
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

// value = number x 1000^unit, with a number that rounds to less than 1000.
int scale_by_thousands(double& value, int units) {
  int unit = 0;
  while (value >= 999.5 && unit + 1 < units) {
    value /= 1000.0;
    ++unit;
  }
  return unit;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0.0) return "?";
  // So small that no milliseconds would be left.
  if (seconds >= 0.5e-6 && seconds < 0.9995e-3) {
    return fmt::format("{:.0f}us", seconds * 1e6);
  }
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1e3);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  if (seconds > 1e14) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  const std::int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  const std::int64_t hours = (whole + 1800) / 3600;
  if (hours < 100 * 24) return fmt::format("{}d{:02}h", hours / 24, hours % 24);
  return fmt::format("{}d", hours / 24);
}

std::string format_count(double count) {
  if (!std::isfinite(count)) return "?";
  if (count < 0.0) return fmt::format("-{}", format_count(-count));
  constexpr std::array<const char*, 7> units = {"", "k", "M", "B", "T", "P", "E"};
  const int unit = scale_by_thousands(count, static_cast<int>(units.size()));
  if (unit == 0) return fmt::format("{:.0f}", count);
  return three_digits(count) + units[static_cast<std::size_t>(unit)];
}

std::string format_count(double count, std::string_view unit) {
  const std::string units = fmt::format("{}s", unit);
  return fmt::format("{} {}", format_count(count), count == 1.0 ? unit : units);
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> units = {"bytes", "KiB", "MiB",
                                                "GiB",   "TiB", "PiB"};
  // Four digits are not grouped: it stands in columns.
  if (bytes < 1024) return fmt::format("{} {}", bytes, bytes == 1 ? "byte" : units[0]);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < units.size(); ++unit) value /= 1024.0;
  return fmt::format("{:.1f} {}", value, units[unit]);
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes) || bytes < 0.0) return "?";
  return human_bytes(static_cast<std::uint64_t>(bytes));
}

std::string format_rate(double per_second, std::string_view unit) {
  if (!std::isfinite(per_second)) return fmt::format("? {}/s", unit);
  const bool small = per_second < 99.95 && per_second != std::floor(per_second);
  return fmt::format("{} {}/s",
                     small ? three_digits(per_second) : format_count(per_second), unit);
}

std::string format_flops(double tera_per_second) {
  if (!std::isfinite(tera_per_second) || tera_per_second < 0.0) return "? FLOP/s";
  constexpr std::array<const char*, 5> units = {"MFLOP/s", "GFLOP/s", "TFLOP/s",
                                                "PFLOP/s", "EFLOP/s"};
  double value = tera_per_second * 1e6;
  const int unit = scale_by_thousands(value, static_cast<int>(units.size()));
  return fmt::format("{} {}", three_digits(value), units[static_cast<std::size_t>(unit)]);
}

std::string format_percent(double fraction) {
  if (!std::isfinite(fraction)) return "?%";
  const double percent = 100.0 * fraction;
  return std::abs(percent) < 9.95 ? fmt::format("{:.1f}%", percent)
                                  : fmt::format("{:.0f}%", percent);
}

std::string format_exact(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end.ptr};
}

std::string shell_word(std::string_view word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

namespace {

// The end of the sequence that begins with the escape character text[at]: behind its last
// letter.
std::size_t end_of_escape(std::string_view text, std::size_t at) {
  while (at + 1 < text.size() && (text[at] < '@' || text[at] > '~' || text[at] == '[')) {
    ++at;
  }
  return at;
}

bool is_unprintable(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0);
}

}  // namespace

std::string plain_text(std::string_view text) {
  std::string valid, plain;
  append_repaired(text, valid);
  for (std::size_t i = 0; i < valid.size();) {
    const auto [code_point, length] = code_point_at(valid, i);
    const std::string_view rest = std::string_view(valid).substr(i);
    if (rest.starts_with("\x1b[")) {
      i = end_of_escape(valid, i) + 1;
      continue;
    }
    if (code_point == U'\n' || code_point == U'\t' || !is_unprintable(code_point)) {
      plain += rest.substr(0, static_cast<std::size_t>(length));
    } else if (!rest.starts_with("\r\n")) {
      plain += "\ufffd";
    }
    i += static_cast<std::size_t>(length);
  }
  return plain;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = end_of_escape(text, i);
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u) {
      ++width;
    }
  }
  return width;
}

namespace {

// Joins the parts with blanks and breaks lines that would be longer than `columns`. The
// text begins at column `indent`, its further lines at column `continued`; `ending`
// stands behind every line but the last.
std::string wrap(const std::vector<std::string>& parts, int columns, int indent,
                 int continued, std::string_view ending = "") {
  std::string out;
  int column = indent;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int width = display_width(parts[i]);
    const bool is_last = i + 1 == parts.size();
    const int end = column + 1 + width + (is_last ? 0 : display_width(ending));
    if (i > 0 && end > columns) {
      out.append(ending) += '\n';
      out.append(static_cast<std::size_t>(continued), ' ');
      column = continued;
    } else if (i > 0) {
      out += ' ';
      ++column;
    }
    out += parts[i];
    column += width;
  }
  return out;
}

}  // namespace

std::string wrap_command(const std::vector<std::string>& parts, int columns, int indent) {
  constexpr int kContinued = 4;  // columns that further lines begin later
  return wrap(parts, columns, indent, indent + kContinued, " \\");
}

std::string wrap_list(const std::vector<std::string>& parts, int columns, int indent) {
  std::vector<std::string> pieces = parts;
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i) pieces[i] += ',';
  return wrap(pieces, columns, indent, indent);
}

namespace {

// Whether the word is a unit, which stays with the number before it.
bool is_unit(std::string_view word) {
  constexpr std::array<std::string_view, 18> kUnits = {
      "s",   "ms",  "us",  "%",   "x",      "B",       "kB",      "MB",      "GB",
      "KiB", "MiB", "GiB", "TiB", "FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "bytes"};
  while (!word.empty() && std::string_view(",.;:)").find(word.back()) != word.npos) {
    word.remove_suffix(1);
  }
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

bool ends_with_digit(std::string_view word) {
  return !word.empty() && word.back() >= '0' && word.back() <= '9';
}

}  // namespace

std::string wrap_words(std::string_view text, int columns, int indent) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!words.empty() && ends_with_digit(words.back()) && is_unit(word)) {
      words.back().append(" ").append(word);
    } else if (end > 0) {
      words.emplace_back(word);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wrap(words, columns, indent, indent);
}

std::string wrap_lines(std::string_view text, int columns, int indent) {
  std::string out;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (display_width(line) <= columns) {
      out += line;
    } else {
      const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
      out += line.substr(0, first);
      out += wrap_words(line.substr(first), columns, static_cast<int>(first) + indent);
    }
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace trireme

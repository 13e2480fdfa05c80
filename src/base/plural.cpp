// base/plural.cpp — see plural.hpp.
#include "base/plural.hpp"

#include <fmt/format.h>

namespace trireme {

std::string format_grouped(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3;) {
    i -= 3;
    text.insert(i, 1, ',');
  }
  return text;
}

std::string format_plural(std::int64_t count, std::string_view unit) {
  return format_plural(count, unit, fmt::format("{}s", unit));
}

std::string format_plural(std::int64_t count, std::string_view unit,
                          std::string_view units) {
  return fmt::format("{} {}", format_grouped(count), count == 1 ? unit : units);
}

}  // namespace trireme

// job/slurm_time.cpp — see slurm_time.hpp.
#include "job/slurm_time.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/words.hpp"

namespace trireme::job {

namespace {

// "1:2:3", no signs and no blanks; empty where it is no such list.
std::vector<double> numbers_between_colons(std::string_view text) {
  std::vector<double> numbers;
  for (const std::string_view part : split(text, ":")) {
    const auto number = number_in<unsigned>(part);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::optional<double> parse_slurm_time(std::string_view text) {
  const std::size_t dash = text.find('-');
  double days = 0.0;
  double unit = 3600.0;  // of the first number
  if (dash != std::string_view::npos) {
    const auto number = numbers_between_colons(text.substr(0, dash));
    if (number.size() != 1) return std::nullopt;
    days = number[0];
    text.remove_prefix(dash + 1);
  }
  const std::vector<double> numbers = numbers_between_colons(text);
  if (numbers.empty() || numbers.size() > 3) return std::nullopt;
  if (dash == std::string_view::npos && numbers.size() < 3) unit = 60.0;
  double seconds = 86400.0 * days;
  for (const double number : numbers) {
    seconds += unit * number;
    unit /= 60.0;
  }
  return seconds;
}

std::string slurm_time_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  return fmt::format("{}-{:02}:{:02}:{:02}", whole / 86400, whole / 3600 % 24,
                     whole / 60 % 60, whole % 60);
}

}  // namespace trireme::job

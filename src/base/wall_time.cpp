// base/wall_time.cpp — see wall_time.hpp.
#include "base/wall_time.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <string_view>

namespace trireme {

double wall_seconds() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double steady_seconds() {
  return seconds_since({});
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string iso_time(double wall_seconds) {
  const double whole = std::floor(wall_seconds);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm utc = {};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  const std::size_t length =
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", std::string_view(text.data(), length),
                     static_cast<int>(1000.0 * (wall_seconds - whole)));
}

}  // namespace trireme

// base/error.cpp — formats a failed TRIREME_REQUIRE.
#include "base/error.hpp"

#include <cstring>

namespace trireme::detail {

void fail_requirement(const char* condition, const char* file, int line,
                      const std::string& message) {
  // The path below src/ is what a reader needs; the rest is the build machine's.
  const char* place = std::strstr(file, "src/");
  throw Error(fmt::format("{}\n  at {}:{}: requirement '{}' does not hold", message,
                          place != nullptr ? place : file, line, condition));
}

}  // namespace trireme::detail

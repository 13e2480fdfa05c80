// base/error.hpp — the exceptions Trireme throws, and the check that throws them.
//
// Only main catches. InputError is the user's to mend (deck, arguments, input files: exit
// status 2); every other Error ends with status 1.
#ifndef TRIREME_BASE_ERROR_HPP_
#define TRIREME_BASE_ERROR_HPP_

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace trireme {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) {}
};

// A wrong deck, argument or input file: what is wrong, where, and how to mend it.
class InputError : public Error {
 public:
  using Error::Error;
};

namespace detail {
[[noreturn]] void fail_requirement(const char* condition, const char* file, int line,
                                   const std::string& message);
}  // namespace detail

}  // namespace trireme

// Throws trireme::Error with the place and a message (fmt format string and arguments)
// that says what was expected, what was found and what to do.
#define TRIREME_REQUIRE(condition, ...)                                   \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::trireme::detail::fail_requirement(#condition, __FILE__, __LINE__, \
                                          ::fmt::format(__VA_ARGS__));    \
    }                                                                     \
  } while (false)

// The same for what the user gave: throws trireme::InputError, without source place.
#define TRIREME_REQUIRE_INPUT(condition, ...)                  \
  do {                                                         \
    if (!(condition)) {                                        \
      throw ::trireme::InputError(::fmt::format(__VA_ARGS__)); \
    }                                                          \
  } while (false)

#endif  // TRIREME_BASE_ERROR_HPP_

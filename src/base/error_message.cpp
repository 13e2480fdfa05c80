// base/error_message.cpp — see error_message.hpp.
#include "base/error_message.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <new>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace trireme {
namespace {

template <class Kind>
bool is(const std::exception& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

// A container's request beyond all memory is a std::length_error; Kokkos throws a
// std::runtime_error, which names the array and its size.
bool is_of_memory(const std::exception& error) {
  return is<std::bad_alloc>(error) || is<std::length_error>(error) ||
         std::string_view(error.what()).find("failed to allocate") !=
             std::string_view::npos;
}

// Without the words around it: "Kokkos ERROR: Host memory space failed to allocate 1.5
// GiB (label="weight").".
std::string_view core_of(std::string_view what) {
  constexpr std::string_view kHead = "Kokkos ERROR: ";
  if (what.starts_with(kHead)) what.remove_prefix(kHead.size());
  while (what.ends_with('.') || what.ends_with('\n')) what.remove_suffix(1);
  return what;
}

std::string limit_of_memory() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format(
      ". The address space of this process is limited to {} KiB (ulimit -v)",
      limit.rlim_cur / 1024);
}

}  // namespace

std::string message_of(const std::exception& error) {
  const std::string what = error.what();
  if (is<Error>(error)) return what;
  if (is_of_memory(error)) {
    return fmt::format(
        "out of memory ({}): `trireme train --dry-run` tells what a run takes{}",
        core_of(what), limit_of_memory());
  }
  if (is<std::system_error>(error)) return what;
  return fmt::format(
      "an error that trireme has no words for: {}. Please report it, with the command "
      "and its files",
      what);
}

namespace {

// The first character of an outcome.
constexpr char kDone = '=', kInputError = 'i', kError = 'e';

}  // namespace

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const InputError& error) {
    return kInputError + std::string(error.what());
  } catch (const std::exception& error) {
    return kError + message_of(error);
  }
}

bool is_failure(const std::string& outcome) {
  return outcome.front() != kDone;
}

std::string text_or_throw(const std::string& outcome) {
  const std::string text = outcome.substr(1);
  if (outcome.front() == kInputError) throw InputError(text);
  if (outcome.front() == kError) throw Error(text);
  return text;
}

}  // namespace trireme

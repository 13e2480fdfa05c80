// ckpt/identity.cpp — see identity.hpp.
#include "ckpt/identity.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/words.hpp"

namespace trireme::ckpt {

namespace {

constexpr std::string_view kStepPrefix = "step_";

}  // namespace

std::string random_id() {
  std::array<unsigned char, kIdLength / 2> bytes;
  const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
  TRIREME_REQUIRE(got == static_cast<ssize_t>(bytes.size()),
                  "the system gives no random bytes: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

bool is_id(std::string_view text) {
  return text.size() == kIdLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string Identity::text() const {
  return fmt::format("run {}, save {}, step {}", run, save, step);
}

std::string step_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return {};
  const auto step =
      number_in<std::int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  if (!step || *step < 0) return {};
  return step;
}

}  // namespace trireme::ckpt

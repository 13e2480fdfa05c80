// base/temporary_name.cpp — see temporary_name.hpp.
#include "base/temporary_name.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <system_error>

#include "base/host_name.hpp"
#include "base/words.hpp"

namespace trireme {

namespace {

constexpr std::string_view kMark = ".tmp-";
constexpr std::size_t kRandomDigits = 16;

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof(bits), 0) == static_cast<ssize_t>(sizeof(bits))) {
    return bits;
  }
  // A kernel without it: different for each call at least.
  return static_cast<std::uint64_t>(
      std::chrono::steady_clock::now().time_since_epoch().count());
}

// Takes what follows the last `-` off the text; empty where there is none.
std::string_view take_last_part(std::string_view& text) {
  const std::size_t dash = text.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view part = text.substr(dash + 1);
  text = text.substr(0, dash);
  return part;
}

bool is_random_part(std::string_view part) {
  return part.size() == kRandomDigits &&
         part.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  return (parent.empty() ? std::filesystem::path(".") : parent) /
         fmt::format(".{}{}{}-{}-{:016x}", path.filename().string(), kMark, host_name(),
                     ::getpid(), random_bits());
}

std::string_view name_to_be(std::string_view temporary) {
  const std::size_t mark = temporary.rfind(kMark);
  if (!temporary.starts_with('.') || mark == std::string_view::npos) return {};
  return temporary.substr(1, mark - 1);
}

std::vector<std::filesystem::path> temporaries_in(
    const std::filesystem::path& directory,
    const std::function<bool(std::string_view)>& is_wanted) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string_view of = name_to_be(name);
    if (!of.empty() && is_wanted(of)) found.push_back(it->path());
  }
  return found;
}

std::optional<TemporaryOwner> owner_of_temporary(std::string_view name) {
  TemporaryOwner owner;
  owner.of = name_to_be(name);
  if (owner.of.empty()) return {};
  std::string_view rest = name.substr(1 + owner.of.size() + kMark.size());
  const std::string_view whole = rest;
  std::string_view part = take_last_part(rest);
  part = part.substr(0, part.find('.'));  // "-RANDOM.tokens"
  if (is_random_part(part)) {
    part = take_last_part(rest);
  } else {  // as it was without a random part
    rest = whole;
    part = take_last_part(rest);
    part = part.substr(0, part.find('.'));
  }
  owner.process = number_in<int>(part).value_or(0);
  if (owner.process <= 0) return {};
  owner.host = rest;
  return owner;
}

bool may_be_alive(const TemporaryOwner& owner) {
  return owner.host != host_name() || ::kill(owner.process, 0) == 0 || errno != ESRCH;
}

}  // namespace trireme

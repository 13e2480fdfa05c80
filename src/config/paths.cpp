// config/paths.cpp — see paths.hpp.
#include "config/paths.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace trireme::config {
namespace {

constexpr const char* kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
constexpr const char* kDigits = "0123456789";

std::optional<std::string> value_of(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// The home directory of a user, or of who runs this where no name is given.
std::optional<std::string> home_of(const std::string& user) {
  if (user.empty()) {
    if (auto home = value_of("HOME")) return home;
  }
  const passwd* entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  if (entry == nullptr || entry->pw_dir == nullptr) return std::nullopt;
  return entry->pw_dir;
}

Parsed<std::string> failure(std::string what, std::string fix = "") {
  return {std::nullopt, std::move(what), std::move(fix)};
}

// The name behind a dollar sign, and where it ends; none where there is no name.
struct Name {
  std::string name;
  std::size_t end = 0;
};
std::optional<Name> name_at(const std::string& text, std::size_t begin) {
  const bool in_braces = text[begin] == '{';
  if (in_braces) ++begin;
  const std::string rest = std::string(kLetters) + kDigits;
  const std::size_t end = std::min(text.find_first_not_of(rest, begin), text.size());
  const bool is_name =
      end > begin && std::string(kDigits).find(text[begin]) == std::string::npos;
  if (!is_name || (in_braces && (end == text.size() || text[end] != '}'))) {
    return std::nullopt;
  }
  return Name{text.substr(begin, end - begin), in_braces ? end + 1 : end};
}

}  // namespace

Parsed<std::string> expand_path(const std::string& text) {
  std::string path;
  std::size_t at = 0;
  if (text.starts_with('~')) {
    at = std::min(text.find('/'), text.size());
    const std::string user = text.substr(1, at - 1);
    const auto home = home_of(user);
    if (!home && user.empty()) return failure("has ~, and no home directory is known");
    if (!home) {
      return failure(fmt::format("names the user '{}', who is not known here (a file of "
                                 "that name is written with ./ before it)",
                                 user),
                     "./" + text);
    }
    path = *home;
  }
  while (at < text.size()) {
    if (text[at] != '$') {
      path += text[at++];
      continue;
    }
    if (text.compare(at, 2, "$$") == 0) {
      path += '$';
      at += 2;
      continue;
    }
    const auto variable =
        at + 1 < text.size() ? name_at(text, at + 1) : std::optional<Name>();
    if (!variable) {
      return failure("has a dollar sign without the name of a variable behind it",
                     text.substr(0, at) + "$" + text.substr(at));
    }
    const auto value = value_of(variable->name);
    if (!value) {
      return failure(
          fmt::format("names the variable {}, which is not set in the environment, or "
                      "empty (a dollar sign itself is written $$)",
                      variable->name));
    }
    path += *value;
    at = variable->end;
  }
  return {path, "", ""};
}

std::string path_text(const std::string& path) {
  std::string text = path.starts_with('~') ? "./" : "";
  for (const char c : path) text += c == '$' ? std::string("$$") : std::string(1, c);
  return text;
}

std::string written_path(const std::string& text) {
  std::string path;
  for (std::size_t at = 0; at < text.size(); ++at) {
    path += text[at];
    if (text.compare(at, 2, "$$") == 0) ++at;
  }
  return path;
}

TextBeforeJob leave_job_variables(const std::string& text) {
  TextBeforeJob result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    result.text += text[at];
    if (text[at] != '$' || at + 1 == text.size()) continue;
    if (text[at + 1] == '$') {
      result.text += text[++at];
      continue;
    }
    const auto variable = name_at(text, at + 1);
    if (!variable || !variable->name.starts_with("SLURM_") || value_of(variable->name)) {
      continue;
    }
    result.text += '$';
    if (result.first.empty()) result.first = variable->name;
  }
  return result;
}

}  // namespace trireme::config

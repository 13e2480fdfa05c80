// base/memory_group.cpp — see memory_group.hpp.
//
// A container sees its own group as the root; a job of a batch system sees all of the
// node's, with its own some levels below, and a limit may be set on any of them.
#include "base/memory_group.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/words.hpp"

namespace trireme {

namespace {

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// "max", where there is no limit, is no number.
std::optional<std::int64_t> number_of(const std::string& file) {
  const std::string text = text_of(file);
  return number_in<std::int64_t>(text.substr(0, text.find('\n')));
}

// "inactive_file 1234" of memory.stat.
std::int64_t cached_bytes(const std::string& file) {
  constexpr std::string_view kKey = "inactive_file ";
  const std::string text = text_of(file);
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with(kKey)) {
      return number_in<std::int64_t>(trimmed(line.substr(kKey.size()))).value_or(0);
    }
  }
  return 0;
}

std::optional<MemoryGroup> group_of(const std::string& directory) {
  const auto limit = number_of(directory + "/memory.max");
  if (!limit || *limit <= 0) return {};
  const std::int64_t used = number_of(directory + "/memory.current").value_or(0) -
                            cached_bytes(directory + "/memory.stat");
  return MemoryGroup{*limit,
                     std::max<std::int64_t>(*limit - std::max<std::int64_t>(used, 0), 0)};
}

// "0::/system.slice/job_7": "/system.slice/job_7". What lies outside of what is mounted
// cannot be seen.
std::string_view path_of(std::string_view own) {
  constexpr std::string_view kVersion2 = "0::";
  for (const std::string_view line : lines_of(own)) {
    if (!line.starts_with(kVersion2)) continue;
    const std::string_view path = trimmed(line.substr(kVersion2.size()));
    return path.find("..") == std::string_view::npos ? path : std::string_view();
  }
  return {};
}

}  // namespace

std::optional<MemoryGroup> memory_group(const std::string& root, std::string_view own) {
  std::string directory = root;
  std::optional<MemoryGroup> least = group_of(directory);
  for (const std::string_view name : split(path_of(own), "/")) {
    if (name.empty()) continue;
    directory.append("/").append(name);
    const std::optional<MemoryGroup> group = group_of(directory);
    if (!group) continue;
    if (!least) least = group;
    least = MemoryGroup{std::min(least->limit, group->limit),
                        std::min(least->left, group->left)};
  }
  return least;
}

}  // namespace trireme

// comm/rank_list.cpp — see rank_list.hpp.
#include "comm/rank_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace trireme::comm {
namespace {

constexpr std::size_t kMostRuns = 8;    // of ranks
constexpr std::size_t kMostHosts = 4;   // of one group
constexpr std::size_t kMostGroups = 8;  // that differ

// Joins at most so many texts, and says how many more there are.
std::string joined(const std::vector<std::string>& texts, std::size_t most,
                   const char* separator) {
  const auto end =
      texts.begin() + static_cast<std::ptrdiff_t>(std::min(most, texts.size()));
  std::string text = fmt::format("{}", fmt::join(texts.begin(), end, separator));
  if (texts.size() > most) {
    text += fmt::format("{}{} more", separator, texts.size() - most);
  }
  return text;
}

std::string host_list(const std::vector<int>& ranks,
                      const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    const std::string& name = hosts.at(static_cast<std::size_t>(rank));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return joined(names, kMostHosts, ", ");
}

}  // namespace

std::vector<std::string> runs_of(const std::vector<int>& numbers) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    runs.push_back(end == i + 1 ? std::to_string(numbers[i])
                                : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return runs;
}

std::string rank_list(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks",
                     joined(runs_of(ranks), kMostRuns, ", "));
}

std::string grouped_by_text(const std::vector<std::string>& texts,
                            const std::vector<std::string>& hosts) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.first == texts[rank];
    });
    auto& ranks = same != groups.end()
                      ? same->second
                      : groups.emplace_back(texts[rank], std::vector<int>()).second;
    ranks.push_back(static_cast<int>(rank));
  }
  std::vector<std::string> lines;
  for (const auto& [text, ranks] : groups) {
    const std::string on =
        hosts.empty() ? "" : fmt::format(" (on {})", host_list(ranks, hosts));
    lines.push_back(fmt::format("{}{}: {}", rank_list(ranks), on, text));
  }
  return joined(lines, kMostGroups, "; ");
}

}  // namespace trireme::comm

// comm/nccl_environment.cpp — see nccl_environment.hpp.
//
// What a user has set is read as NCCL reads it, because a list that leaves nothing but
// fixed orders is as good as ours and must not be refused. All that contradicts is said
// at once, since each start on a cluster may wait in a queue. NCCL's manual ("Environment
// Variables") writes a list of algorithms as
//   [function:][^]algorithm,...[;function:[^]algorithm,...]...
// where ^ takes all but those, and a part without a function is for all that no other
// part names.
#include "comm/nccl_environment.hpp"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "comm/on_ranks.hpp"
#include "comm/rank_list.hpp"

namespace trireme::comm {
namespace {

constexpr std::string_view kFixed[] = {"ring", "tree", "pat"};
constexpr std::string_view kVarying[] = {"collnetdirect", "collnetchain", "nvls",
                                         "nvlstree"};
constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower;
}

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream rest(text);
  for (std::string part; std::getline(rest, part, separator);) parts.push_back(part);
  return parts;
}

// Whether a list leaves only algorithms that add in a fixed order.
bool is_fixed_list(std::string list) {
  const bool excludes = list.starts_with('^');
  if (excludes) list.erase(0, 1);
  const std::vector<std::string> names = parts_of(list, ',');
  const auto is_named = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (excludes) return std::ranges::all_of(kVarying, is_named);
  return !names.empty() && std::ranges::all_of(names, [](const std::string& name) {
    return std::ranges::find(kFixed, name) != std::end(kFixed);
  });
}

bool is_fixed(const std::string& algorithms) {
  bool is_for_all = false;
  for (const std::string& part : parts_of(lower_case(algorithms), ';')) {
    const std::size_t colon = part.find(':');
    is_for_all = is_for_all || colon == std::string::npos;
    if (!is_fixed_list(colon == std::string::npos ? part : part.substr(colon + 1))) {
      return false;
    }
  }
  return is_for_all;
}

// What has to be the same on all ranks, as a text.
std::string common_settings() {
  std::string text;
  for (const char* name :
       {"NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE",
        "NCCL_TUNER_PLUGIN", "NCCL_RUNTIME_CONNECT", "NCCL_BUFFSIZE", "NCCL_NTHREADS",
        "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"}) {
    if (const char* value = std::getenv(name)) text += fmt::format(" {}={}", name, value);
  }
  return text.empty() ? "nothing" : text.substr(1);
}

}  // namespace

Variables nccl_settings(const std::function<const char*(const char*)>& get,
                        bool is_deterministic) {
  Variables settings;
  std::vector<std::string> problems;
  const auto refuse = [&](const std::string& name, const std::string& why) {
    problems.push_back(fmt::format("{}={}: {}", name, get(name.c_str()), why));
  };
  const auto want = [&](const std::string& name, const std::string& value,
                        const std::string& why) {
    const char* given = get(name.c_str());
    if (given == nullptr) {
      settings.emplace_back(name, value);
    } else if (lower_case(given) != value) {
      refuse(name, why);
    }
  };
  if (get("NCCL_RUNTIME_CONNECT") == nullptr) {
    settings.emplace_back("NCCL_RUNTIME_CONNECT", "0");
  }
  if (is_deterministic) {
    const char* algorithms = get("NCCL_ALGO");
    if (algorithms == nullptr) {
      settings.emplace_back("NCCL_ALGO", "Ring,Tree");
    } else if (!is_fixed(algorithms)) {
      refuse("NCCL_ALGO",
             "it lets NCCL add in the order in which numbers arrive; of Ring, Tree and "
             "PAT the order is fixed (as in Ring,Tree, for all functions)");
    }
    want("NCCL_NVLS_ENABLE", "0", "NVLS adds in the order in which numbers arrive");
    want("NCCL_COLLNET_ENABLE", "0", "CollNet adds in the order in which numbers arrive");
    want("NCCL_TUNER_PLUGIN", "none",
         "a tuner may choose another algorithm in another run");
  }
  if (problems.empty()) return settings;
  throw InputError(fmt::format(
      "the environment asks NCCL for what this run must not have{}:\n  {}\nUnset {}{}",
      is_deterministic ? " (run.deterministic: true promises the same bits each time)"
                       : "",
      fmt::join(problems, "\n  "), problems.size() == 1 ? "it" : "them",
      is_deterministic ? ", or give the promise up: run.deterministic=false" : ""));
}

void settle_nccl(Communicator& group, bool is_deterministic) {
  on_every_rank(group, [&] {
    const auto get = [](const char* name) { return std::getenv(name); };
    for (const auto& [name, value] : nccl_settings(get, is_deterministic)) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  });
  const std::vector<std::string> all = group.gather(common_settings());
  TRIREME_REQUIRE_INPUT(
      all_same(all),
      "the ranks of group '{}' have different settings of NCCL, which then waits for "
      "ever "
      "or adds in different orders: {}. Give all ranks the same environment",
      group.name(), grouped_by_text(all));
}

Variables nccl_variables() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t end = text.find('=');
    if (end == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, end);
    if (name.starts_with("NCCL_") || name == kQueues) {
      variables.emplace_back(name, text.substr(end + 1));
    }
  }
  std::ranges::sort(variables);
  return variables;
}

}  // namespace trireme::comm

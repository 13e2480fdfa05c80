// apps/thread_settings.cpp — see thread_settings.hpp.
#include "apps/thread_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/host_cores.hpp"
#include "base/plural.hpp"
#include "base/words.hpp"
#include "comm/rank_list.hpp"

namespace trireme::apps {
namespace {

// The whole number from 1 that a text says, or none; the largest int for what is larger.
std::optional<int> positive(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return {};
  const int number = number_in<int>(text).value_or(std::numeric_limits<int>::max());
  return number > 0 ? std::optional(number) : std::nullopt;
}

// "4", "4,2": the first number, where all of them are good.
std::optional<int> first_of_list(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ",");
  const bool are_good =
      std::ranges::all_of(parts, [](auto part) { return positive(part).has_value(); });
  return are_good ? positive(parts.front()) : std::nullopt;
}

// How many of the threads that are wanted could be started beside this one. They wait for
// each other, so that all are there at a time, and end.
int threads_that_start(int wanted) {
  std::mutex mutex;
  std::condition_variable all_are_there;
  bool may_end = false;
  std::vector<std::thread> threads;
  try {
    while (static_cast<int>(threads.size()) < wanted) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        all_are_there.wait(lock, [&] { return may_end; });
      });
    }
  } catch (const std::system_error&) {  // no more
  }
  {
    const std::lock_guard lock(mutex);
    may_end = true;
  }
  all_are_there.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

}  // namespace

ThreadSettings thread_settings(const std::function<const char*(const char*)>& get) {
  ThreadSettings settings;
  for (const char* name : {"OMP_NUM_THREADS", "KOKKOS_NUM_THREADS"}) {
    const char* value = get(name);
    if (value == nullptr || trimmed(value).empty()) continue;
    const bool is_list = std::string_view(name) == "OMP_NUM_THREADS";
    const auto threads = is_list ? first_of_list(value) : positive(value);
    if (!threads) {
      settings.problem =
          fmt::format("{} is '{}': a whole number of threads from 1 is expected{}", name,
                      value, is_list ? ", or a list of them ('4,2')" : "");
      return settings;
    }
    if (*threads > kMostThreads) {
      settings.problem = fmt::format(
          "{} is '{}': a rank can have {} at most. Start more ranks (mpiexec -n)", name,
          value, format_plural(kMostThreads, "thread"));
      return settings;
    }
    settings.threads = *threads;
    settings.source = name;
  }
  return settings;
}

ThreadCheck::ThreadCheck()
    : settings_(thread_settings([](const char* name) { return std::getenv(name); })) {}

std::string ThreadCheck::problem(const comm::Environment& environment, int team) const {
  std::string mine = settings_.problem;
  if (mine.empty() && team > 1) {
    const int started = 1 + threads_that_start(team - 1);
    if (started < team) {
      mine = fmt::format(
          "{} is {}, but the system lets this process have {}: set it lower, or "
          "raise the limit (ulimit -u, ulimit -v, the job's or container's pids and "
          "memory)",
          settings_.source, team, format_plural(started, "thread"));
    }
  }
  const std::vector<std::string> all = environment.world()->gather(mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    return comm::all_same(all) ? all[rank] : fmt::format("rank {}: {}", rank, all[rank]);
  }
  return {};
}

std::string ThreadCheck::warning() const {
  const auto cores = static_cast<int>(allowed_cores().size());
  if (cores == 0 || settings_.threads <= cores) return {};
  return fmt::format(
      "{} is {}, and this process may run on {}: its threads take "
      "turns, which is slow",
      settings_.source, settings_.threads, format_plural(cores, "core"));
}

}  // namespace trireme::apps

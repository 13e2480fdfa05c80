// base/fault_plan.cpp — see fault_plan.hpp.
//
// Every rank parses the whole text with the same seed and draws the same numbers, whether
// or not a rule is its own: a wrong rule is then an error on all ranks, and the ranks
// agree on which of them a fault strikes. Rules are struck in the thread that passes a
// phase (at()), except those of a time, which have a thread each (clocks_).
#include "base/fault_plan.hpp"

#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/words.hpp"

namespace trireme {

namespace {

using Kind = FaultPlan::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 8> kKinds = {
    {{"kill", Kind::kill},
     {"stop", Kind::stop},
     {"slow", Kind::slow},
     {"enospc", Kind::enospc},
     {"eio", Kind::eio},
     {"short_write", Kind::short_write},
     {"bit_flip", Kind::bit_flip},
     {"overflow", Kind::overflow}}};

InputError wrong(const std::string& rule, const std::string& what) {
  return InputError(fmt::format(
      "--fault '{}': {}. A fault is KIND:KEY=VALUE,..., such as "
      "kill:rank=3,phase=ckpt.write; docs/restart.md lists kinds, keys and phases",
      rule, what));
}

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::optional<double> number_of(std::string_view text) {
  const auto value = number_in<double>(text);
  return value && *value >= 0.0 ? value : std::nullopt;
}

// The values of a rule's keys; a range is a number that `draw` picks.
struct Values {
  const std::string& rule;
  std::uint64_t state;

  std::pair<double, double> range(const std::string& key, const std::string& text) {
    const std::size_t dash = text.find('-');
    const auto low = number_of(std::string_view(text).substr(0, dash));
    const auto high = dash == std::string::npos
                          ? low
                          : number_of(std::string_view(text).substr(dash + 1));
    if (!low || !high || *low > *high) {
      throw wrong(rule, fmt::format("{}={} is neither a number nor a range of numbers",
                                    key, text));
    }
    return {*low, *high};
  }
  double share() {
    state = mix(state);
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
  std::int64_t whole(const std::string& key, const std::string& text) {
    const auto [low, high] = range(key, text);
    if (low != static_cast<double>(static_cast<std::int64_t>(low)) ||
        high != static_cast<double>(static_cast<std::int64_t>(high))) {
      throw wrong(rule, fmt::format("{}={} is not a whole number", key, text));
    }
    return static_cast<std::int64_t>(low + share() * (high - low + 1.0));
  }
  double time(const std::string& key, const std::string& text) {
    const auto [low, high] = range(key, text);
    return low + share() * (high - low);
  }
};

bool can_strike(Kind kind, const FaultPhase& phase) {
  if (kind == Kind::enospc || kind == Kind::eio) return phase.writes;
  if (kind == Kind::short_write || kind == Kind::bit_flip) return phase.has_data;
  if (kind == Kind::overflow) return phase.has_gradients;
  return true;
}

bool names_phase(const std::string& pattern, std::string_view phase) {
  if (!pattern.ends_with('*')) return pattern == phase;
  return phase.starts_with(std::string_view(pattern).substr(0, pattern.size() - 1));
}

using Keys = std::vector<std::pair<std::string, std::string>>;

// "KEY=VALUE,KEY=VALUE" of the rule `rule`, each key once.
Keys split_keys(const std::string& rule, const std::string& list) {
  Keys keys;
  for (const std::string_view part : split(list, ",")) {
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw wrong(rule, fmt::format("'{}' is not KEY=VALUE", part));
    }
    const std::string key(part.substr(0, equals));
    if (std::ranges::find(keys, key, &Keys::value_type::first) != keys.end()) {
      throw wrong(rule, fmt::format("'{}' stands twice", key));
    }
    keys.emplace_back(key, part.substr(equals + 1));
  }
  return keys;
}

}  // namespace

void FaultPlan::set_phases(Rule& rule, std::string_view kind, const std::string& pattern,
                           const std::vector<FaultPhase>& phases) {
  const bool is_timed = rule.at >= 0.0;
  if (is_timed == !pattern.empty()) {
    throw wrong(rule.text, "a fault has either a phase or a time (at=SECONDS)");
  }
  if (is_timed && rule.kind != Kind::kill && rule.kind != Kind::stop) {
    throw wrong(rule.text,
                "at a time, whatever the run does, only kill and stop can happen");
  }
  std::vector<std::string> possible;
  for (const FaultPhase& phase : phases) {
    if (!can_strike(rule.kind, phase)) continue;
    possible.push_back(phase.name);
    if (names_phase(pattern, phase.name)) rule.phases.push_back(phase.name);
  }
  if (!is_timed && rule.phases.empty()) {
    throw wrong(rule.text, fmt::format("there is no phase '{}' for {}; there are {}",
                                       pattern, kind, fmt::join(possible, ", ")));
  }
}

FaultPlan::Rule FaultPlan::parse_rule(const std::string& text, std::uint64_t number,
                                      int rank, int ranks,
                                      const std::vector<FaultPhase>& phases) {
  Rule rule;
  rule.text = text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& known) {
    return known.first == std::string_view(text).substr(0, colon);
  });
  if (kind == kKinds.end()) {
    throw wrong(text, fmt::format("there is no kind '{}'", text.substr(0, colon)));
  }
  rule.kind = kind->second;
  const Keys keys =
      colon < text.size() ? split_keys(text, text.substr(colon + 1)) : Keys{};
  std::uint64_t seed = 0;
  Values values{text, 0};
  for (const auto& [key, value] : keys) {
    if (key == "seed") seed = static_cast<std::uint64_t>(values.whole(key, value));
  }
  values.state = mix(seed + mix(number));
  std::int64_t its_rank = -1;
  std::string pattern;
  for (const auto& [key, value] : keys) {
    if (key == "phase") {
      pattern = value;
    } else if (key == "rank") {
      its_rank = values.whole(key, value);
      // A rank out of range is an error whatever the seed draws.
      if (values.range(key, value).second >= ranks) {
        throw wrong(text, fmt::format("rank {} of a run of {}", value, ranks));
      }
    } else if (key == "step") {
      rule.step = values.whole(key, value);
    } else if (key == "after") {
      rule.after = values.whole(key, value);
    } else if (key == "times") {
      rule.times = values.whole(key, value);
    } else if (key == "seconds") {
      rule.seconds = values.time(key, value);
    } else if (key == "at") {
      rule.at = values.time(key, value);
    } else if (key != "seed") {
      throw wrong(text, fmt::format("there is no key '{}'", key));
    }
  }
  rule.is_mine = its_rank < 0 || its_rank == rank;
  set_phases(rule, kind->first, pattern, phases);
  return rule;
}

FaultPlan::FaultPlan(const std::string& text, int rank, int ranks,
                     const std::vector<FaultPhase>& phases)
    : rank_(rank) {
  if (text.empty()) return;
  std::uint64_t number = 0;
  for (const std::string_view rule : split(text, ";")) {
    if (rule.empty()) {
      throw wrong(text, "there is nothing before or after a ';', which separates faults");
    }
    rules_.push_back(parse_rule(std::string(rule), number++, rank, ranks, phases));
  }
  for (const Rule& rule : rules_) {
    if (rule.at < 0.0 || !rule.is_mine) continue;
    clocks_.emplace_back([this, rule](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any wake;
      wake.wait_for(lock, stop, std::chrono::duration<double>(rule.at),
                    [] { return false; });
      if (stop.stop_requested()) return;
      say(rule, fmt::format("{:.3f} s", rule.at), step_);
      strike(rule);
    });
  }
}

Fault FaultPlan::at(std::string_view phase, std::int64_t step) {
  Fault fault = Fault::none;
  for (Rule& rule : rules_) {
    if (!rule.is_mine ||
        std::find(rule.phases.begin(), rule.phases.end(), phase) == rule.phases.end()) {
      continue;
    }
    if (rule.step >= 0 && rule.step != step) continue;
    bool is_new = true;
    {
      const std::lock_guard lock(mutex_);
      ++rule.met;
      if (rule.met < rule.after) continue;
      if (rule.times > 0 && rule.met >= rule.after + rule.times) continue;
      is_new = !rule.has_struck;
      rule.has_struck = true;
    }
    // A machine that is slow all the time would say nothing else.
    if (is_new || rule.kind != Kind::slow || rule.times > 0) say(rule, phase, step);
    const Fault its = strike(rule);
    if (its != Fault::none) fault = its;
  }
  return fault;
}

void FaultPlan::say(const Rule& rule, std::string_view where, std::int64_t step) const {
  std::fprintf(stderr, "fault: '%s' strikes rank %d at %.*s, step %lld\n",
               rule.text.c_str(), rank_, static_cast<int>(where.size()), where.data(),
               static_cast<long long>(step));
  std::fflush(stderr);
}

Fault FaultPlan::strike(const Rule& rule) {
  switch (rule.kind) {
    case Kind::kill:
      ::kill(::getpid(), SIGKILL);
      return Fault::none;
    case Kind::stop:
      ::kill(::getpid(), SIGSTOP);
      return Fault::none;
    case Kind::slow:
      std::this_thread::sleep_for(std::chrono::duration<double>(rule.seconds));
      return Fault::none;
    case Kind::enospc:
      return Fault::no_space;
    case Kind::eio:
      return Fault::io_error;
    case Kind::short_write:
      return Fault::short_write;
    case Kind::bit_flip:
      return Fault::bit_flip;
    case Kind::overflow:
      return Fault::overflow;
  }
  return Fault::none;
}

}  // namespace trireme

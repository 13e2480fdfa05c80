// kernels/gemm_choice.cpp — see gemm_choice.hpp.
#include "kernels/gemm_choice.hpp"

#include <algorithm>
#include <vector>

namespace trireme::kernels {

namespace {

struct TriedWay {
  int number = 0;
  std::uint64_t digest = 0;
  std::vector<double> seconds{};
  bool is_timed = true;  // in further rounds

  double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    const std::size_t n = sorted.size();
    return 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
  }
  double shortest() const { return std::ranges::min(seconds); }
};

// The first run of each way is its warm-up: the device loads code and memory.
std::vector<TriedWay> ways_that_run(GemmTrials& trials) {
  std::vector<TriedWay> ways;
  for (int number = 0; number < trials.count(); ++number) {
    TriedWay way{.number = number};
    if (trials.run(number, way.digest)) ways.push_back(way);
  }
  return ways;
}

double fastest_of(const std::vector<TriedWay>& ways) {
  double fastest = GemmTrialResult::kUnknown;
  for (const TriedWay& way : ways) fastest = std::min(fastest, way.median());
  return fastest;
}

void time_in_turn(GemmTrials& trials, const TrialLimits& limits,
                  std::vector<TriedWay>& ways) {
  double spent = 0.0;
  const auto time = [&](TriedWay& way) {
    if (!way.is_timed) return;
    way.seconds.push_back(trials.seconds(way.number));
    spent += way.seconds.back();
  };
  for (int round = 0; round < limits.rounds; round += 2) {
    if (round >= limits.least_rounds) {
      if (spent >= limits.budget) return;
      const double most = limits.hopeless * fastest_of(ways);
      for (TriedWay& way : ways) way.is_timed = way.is_timed && way.shortest() <= most;
    }
    std::for_each(ways.begin(), ways.end(), time);
    std::for_each(ways.rbegin(), ways.rend(), time);
  }
}

}  // namespace

GemmTrialResult choose_way(GemmTrials& trials, const TrialLimits& limits) {
  GemmTrialResult result;
  std::vector<TriedWay> ways = ways_that_run(trials);
  result.timed = static_cast<int>(ways.size());
  if (ways.empty()) return result;
  time_in_turn(trials, limits, ways);
  result.first_seconds = ways.front().median();
  while (!ways.empty()) {
    const double most = (1.0 + limits.margin) * fastest_of(ways);
    const auto chosen = std::ranges::find_if(
        ways, [&](const TriedWay& way) { return way.median() <= most; });
    // Between its two runs lie those of all others, which leave memory and workspace as
    // no first run finds them.
    std::uint64_t digest = 0;
    if (trials.run(chosen->number, digest) && digest == chosen->digest) {
      result.way = chosen->number;
      result.seconds = chosen->median();
      return result;
    }
    ++result.unsteady;
    ways.erase(chosen);
  }
  return result;
}

}  // namespace trireme::kernels

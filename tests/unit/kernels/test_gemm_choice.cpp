// The choice between ways to compute a product, on times that a test makes up: with
// noise, with a device that becomes slower, with ways that fail or differ from run to
// run.
#include "kernels/gemm_choice.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace trireme::kernels {
namespace {

struct FakeWay {
  double seconds = 1e-3;
  bool refuses = false;
  bool is_unsteady = false;  // other bits each time
};

class FakeTrials final : public GemmTrials {
 public:
  explicit FakeTrials(std::vector<FakeWay> ways) : ways_(std::move(ways)) {}

  int count() const override { return static_cast<int>(ways_.size()); }
  bool run(int way, std::uint64_t& digest) override {
    const FakeWay& one = ways_.at(static_cast<std::size_t>(way));
    runs.push_back(way);
    digest = static_cast<std::uint64_t>(way);
    if (one.is_unsteady) digest += 1000 * runs.size();
    return !one.refuses;
  }
  double seconds(int way) override {
    EXPECT_FALSE(ways_.at(static_cast<std::size_t>(way)).refuses);
    timed.push_back(way);
    const auto n = static_cast<double>(timed.size());
    return (1 + drift * n) * factor() * ways_[static_cast<std::size_t>(way)].seconds;
  }
  std::vector<int> times_of_way() const {
    std::vector<int> counts(ways_.size(), 0);
    for (const int way : timed) ++counts[static_cast<std::size_t>(way)];
    return counts;
  }

  double noise = 0.0;   // up to this share more
  double spikes = 0.0;  // how often a call takes a hundred times as long
  double drift = 0.0;   // share by which each call is slower than the one before
  unsigned seed = 1;
  std::vector<int> runs, timed;

 private:
  double factor() {
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    const double more = 1 + noise * uniform(generator());
    return uniform(generator()) < spikes ? 100 : more;
  }
  std::mt19937& generator() {
    if (!generator_) generator_ = std::make_unique<std::mt19937>(seed);
    return *generator_;
  }

  std::vector<FakeWay> ways_;
  std::unique_ptr<std::mt19937> generator_;
};

std::vector<FakeWay> ways(const std::vector<double>& microseconds) {
  std::vector<FakeWay> all;
  for (const double one : microseconds) all.push_back({.seconds = 1e-6 * one});
  return all;
}

TEST(GemmChoice, TakesWhatIsClearlyFaster) {
  FakeTrials trials(ways({100, 120, 90, 95}));
  const GemmTrialResult result = choose_way(trials);
  EXPECT_EQ(result.way, 2);
  EXPECT_DOUBLE_EQ(result.seconds, 90e-6);
  EXPECT_DOUBLE_EQ(result.first_seconds, 100e-6);
  EXPECT_EQ(result.timed, 4);
  EXPECT_EQ(result.unsteady, 0);
}

// The first of those that are within the margin of the fastest, which is none of them.
TEST(GemmChoice, StaysWithThePreferredWithinTheMargin) {
  FakeTrials near(ways({101, 99.5, 100}));
  EXPECT_EQ(choose_way(near).way, 0);
  FakeTrials far(ways({103, 101, 99.5}));
  EXPECT_EQ(choose_way(far).way, 1);
  FakeTrials one(ways({70}));
  EXPECT_EQ(choose_way(one).way, 0);
}

// Some calls take a hundred times as long: whatever the numbers drawn, equal
// ways leave the first where it is, and one that is a third faster is taken.
TEST(GemmChoice, NoiseDecidesNothing) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    FakeTrials equal(ways({100, 100, 100, 100, 100, 100}));
    equal.seed = seed;
    equal.noise = 0.01;
    equal.spikes = 0.03;
    EXPECT_EQ(choose_way(equal).way, 0) << seed;
    FakeTrials faster(ways({100, 100, 100, 66, 100, 100}));
    faster.seed = seed;
    faster.noise = 0.1;
    faster.spikes = 0.03;
    EXPECT_EQ(choose_way(faster).way, 3) << seed;
  }
}

// A device that becomes a half slower, or faster, while it is looked at.
TEST(GemmChoice, DriftFavoursNone) {
  for (const double drift : {0.01, -0.005}) {
    FakeTrials first(ways({100, 100, 100, 100, 100, 100}));
    first.drift = drift;
    EXPECT_EQ(choose_way(first).way, 0);
    FakeTrials last(ways({103, 103, 103, 103, 103, 100}));
    last.drift = drift;
    EXPECT_EQ(choose_way(last).way, 5);
  }
}

// Rounds go forwards and backwards in turn, after a first run of each way.
TEST(GemmChoice, TimesInTurn) {
  FakeTrials trials(ways({100, 101, 102}));
  choose_way(trials, {.rounds = 4});
  EXPECT_EQ(trials.timed, (std::vector{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(trials.runs, (std::vector{0, 1, 2, 0}));
}

TEST(GemmChoice, LeavesOutWhatCannotRun) {
  std::vector<FakeWay> some = ways({80, 100, 60, 99});
  some[0].refuses = some[2].refuses = true;
  FakeTrials trials(some);
  const GemmTrialResult result = choose_way(trials);
  EXPECT_EQ(result.way, 1);
  EXPECT_EQ(result.timed, 2);
  EXPECT_DOUBLE_EQ(result.first_seconds, 100e-6);
  for (FakeWay& way : some) way.refuses = true;
  FakeTrials none(some);
  EXPECT_EQ(choose_way(none).way, -1);
  FakeTrials empty({});
  EXPECT_EQ(choose_way(empty).way, -1);
}

// However fast it is.
TEST(GemmChoice, RefusesWhatHasOtherBitsAgain) {
  std::vector<FakeWay> some = ways({100, 50, 70});
  some[1].is_unsteady = true;
  FakeTrials trials(some);
  GemmTrialResult result = choose_way(trials);
  EXPECT_EQ(result.way, 2);
  EXPECT_EQ(result.unsteady, 1);
  for (FakeWay& way : some) way.is_unsteady = true;
  FakeTrials none(some);
  result = choose_way(none);
  EXPECT_EQ(result.way, -1);
  EXPECT_EQ(result.unsteady, 3);
}

TEST(GemmChoice, SpendsNoMoreThanItMay) {
  // What is far behind after the least rounds is timed no more.
  FakeTrials hopeless(ways({100, 200, 101}));
  choose_way(hopeless, {.rounds = 8, .least_rounds = 4});
  EXPECT_EQ(hopeless.times_of_way(), (std::vector{8, 4, 8}));
  // Long products have the least rounds alone.
  FakeTrials slow(ways({2e5, 2.1e5}));
  choose_way(slow, {.rounds = 8, .least_rounds = 4, .budget = 0.5});
  EXPECT_EQ(slow.times_of_way(), (std::vector{4, 4}));
}

}  // namespace
}  // namespace trireme::kernels

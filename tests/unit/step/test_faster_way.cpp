// Which of two ways is taken, against clocks that the test makes.
#include "step/faster_way.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace trireme::step {
namespace {

struct Turns {
  double seconds = 0;
  int second = 0;  // turns that went the second way
};

// So many turns of ways that take first(turn) and second(turn) seconds.
Turns take(FasterWay& way, int turns, const std::function<double(int)>& first,
           const std::function<double(int)>& second) {
  Turns total;
  for (int turn = 0; turn < turns; ++turn) {
    const bool is_second = way.takes_second();
    const double seconds = is_second ? second(turn) : first(turn);
    way.add(seconds);
    total.seconds += seconds;
    total.second += is_second ? 1 : 0;
  }
  return total;
}
std::function<double(int)> always(double seconds) {
  return [seconds](int) { return seconds; };
}

TEST(FasterWayTest, TheFirstIsKeptWithoutTrialsWhereTheSecondCannotBeFaster) {
  FasterWay way(0.02);
  EXPECT_EQ(take(way, 1000, always(0.01), always(0.02)).second, 0);
}

TEST(FasterWayTest, TheFasterIsFoundAndTrialsAreFew) {
  FasterWay slower_second(0.001);
  EXPECT_LE(take(slower_second, 1000, always(0.01), always(0.02)).second, 20);
  FasterWay faster_second(0.001);
  EXPECT_GE(take(faster_second, 1000, always(0.02), always(0.01)).second, 970);
}

TEST(FasterWayTest, ShortTurnsAreTriedForLonger) {
  // Single turns say the wrong thing: every fourth of the faster way is late.
  FasterWay way(1e-6);
  const Turns total = take(way, 4000, always(30e-6),
                           [](int turn) { return turn % 4 == 0 ? 45e-6 : 10e-6; });
  EXPECT_GE(total.second, 3500);
}

// What another process on one of the cores makes of several threads: most turns are as
// fast as ever, and one in fifty takes as long as the system lets the other one run.
TEST(FasterWayTest, RareLongTurnsCount) {
  FasterWay way(30e-6);
  const Turns total = take(
      way, 4000, [](int turn) { return turn % 50 == 49 ? 4e-3 : 45e-6; }, always(70e-6));
  EXPECT_LE(total.seconds, 1.25 * 4000 * 70e-6);
}

// Every third turn of all threads waits for a slice of the system's time.
TEST(FasterWayTest, ABusyMachineCostsFewSlices) {
  constexpr int kTurns = 1500;
  FasterWay way(30e-6);
  int slices = 0;
  const auto all = [&](int turn) {
    const bool waits = turn % 3 == 1;
    if (waits) ++slices;
    return waits ? 4e-3 : 90e-6;
  };
  const Turns total = take(way, kTurns, all, always(150e-6));
  EXPECT_LE(slices, 4);
  EXPECT_LE(total.seconds, 1.08 * kTurns * 150e-6);
}

TEST(FasterWayTest, WhatTheSystemSaysPutsTheFirstWayOffButNotForEver) {
  bool is_busy = true;
  FasterWay way(30e-6, [&] { return is_busy; });
  EXPECT_EQ(take(way, 1000, always(4e-3), always(150e-6)).second, 1000);
  is_busy = false;  // and the first way has become the faster
  EXPECT_LE(take(way, 1000, always(90e-6), always(150e-6)).second, 100);

  FasterWay misled(30e-6, [] { return true; });
  EXPECT_LE(take(misled, 2000, always(90e-6), always(150e-6)).second, 1200);
}

// Where turns are long, the first is of all threads already: a step of one thread of many
// would be seen.
TEST(FasterWayTest, TheFirstTurnGoesTheWayThatCostsLess) {
  EXPECT_FALSE(FasterWay(0.02).takes_second());
  EXPECT_TRUE(FasterWay(30e-6).takes_second());
  FasterWay way(30e-6);
  way.add(1e-3);
  EXPECT_FALSE(way.takes_second());
}

TEST(FasterWayTest, AChangeIsNoticed) {
  FasterWay way(0.008);
  // Quiet, then a process that takes half a core from all threads, then quiet again.
  EXPECT_EQ(take(way, 200, always(0.005), always(0.01)).second, 0);
  const Turns busy = take(way, 200, always(0.03), always(0.01));
  EXPECT_LE(busy.seconds, 200 * 0.01 * 1.5);
  const Turns quiet = take(way, 2000, always(0.005), always(0.01));
  EXPECT_LE(quiet.second, 1000);
  EXPECT_FALSE(way.takes_second());
}

}  // namespace
}  // namespace trireme::step

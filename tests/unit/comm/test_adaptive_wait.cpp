// Polling and naps by clocks that the test sets: a core of one's own, one that others
// take away for a turn, and one that they leave again.
#include "comm/adaptive_wait.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace trireme::comm {
namespace {

using Next = AdaptiveWait::Next;

// The thread's two clocks. A poll takes its time on both; somebody else's turn on one.
double wall = 0.0, on_core = 0.0;

class AdaptiveWaitPolls : public ::testing::Test {
 protected:
  static constexpr double kPoll = 1e-6;

  void SetUp() override { wall = on_core = 1.0; }

  // Waits for a message that comes after so long; another thread has the core for `turn`
  // seconds out of each period. Returns how often it napped.
  int wait_for(double seconds, double period = 1e9, double turn = 0.0) {
    int naps = 0;
    const double arrival = wall + seconds;
    double next_turn = wall + period;
    wait_.begin();
    while (wall < arrival) {
      wall += kPoll;
      on_core += kPoll;
      if (wall >= next_turn) {
        wall += turn;
        next_turn = wall + period;
      }
      if (wall >= arrival) break;
      if (wait_.next() == Next::poll) continue;
      naps += 1;
      wall += 75e-6;  // on no core
    }
    wait_.end();
    return naps;
  }

  AdaptiveWait wait_{{.wall = [] { return wall; }, .on_core = [] { return on_core; }}};
};

TEST_F(AdaptiveWaitPolls, PollsOnACoreOfItsOwn) {
  for (const double seconds : {1e-6, 5e-5, 1e-3, 0.1, 2.0}) {
    EXPECT_EQ(wait_for(seconds), 0) << seconds;
  }
  EXPECT_FALSE(wait_.is_napping());
}

// Never for more than a tenth of what the wait has lasted, but for its first naps.
TEST(AdaptiveWaitNaps, GrowWithTheWait) {
  double waited = 0.0, before = 0.0;
  for (std::int64_t naps = 0; naps < 5000; ++naps) {
    const double nap = 1e-9 * static_cast<double>(nap_nanoseconds(naps));
    EXPECT_GE(nap, before);
    if (naps >= 32) {
      EXPECT_LE(nap, 0.1 * waited) << naps;
    }
    before = nap;
    waited += nap;
  }
  EXPECT_EQ(nap_nanoseconds(0), 20000);
  EXPECT_EQ(before, 250e-6);
  EXPECT_EQ(nap_nanoseconds(std::numeric_limits<std::int64_t>::max()), 250000);
}

// Timers and daemons take a core for a moment, now and then.
TEST_F(AdaptiveWaitPolls, DoesNotMindInterrupts) {
  EXPECT_EQ(wait_for(5.0, 4e-3, 50e-6), 0);
}

TEST_F(AdaptiveWaitPolls, NapsAfterATurnOfSomebodyElse) {
  EXPECT_GT(wait_for(0.03, 3e-3, 3e-3), 100);
  EXPECT_TRUE(wait_.is_napping());
}

// The message came during the turn: the wait is over at the next poll, and the one after
// naps.
TEST_F(AdaptiveWaitPolls, NoticesATurnInWhichTheMessageCame) {
  EXPECT_EQ(wait_for(2.1e-3, 1e-4, 3e-3), 0);
  EXPECT_TRUE(wait_.is_napping());
  EXPECT_GT(wait_for(0.01), 0);
}

// A message that comes soon is not slept through on a shared core either; one for which
// a partner needs its core first is.
TEST_F(AdaptiveWaitPolls, PollsSomewhatBeforeItNaps) {
  wait_for(0.02, 3e-3, 3e-3);
  ASSERT_TRUE(wait_.is_napping());
  EXPECT_EQ(wait_for(2e-3), 0);  // 2000 polls, of a microsecond here
  EXPECT_GT(wait_for(8e-3), 0);
}

TEST_F(AdaptiveWaitPolls, PollsAgainWhenTheCoreIsItsOwnAgain) {
  wait_for(0.02, 3e-3, 3e-3);
  ASSERT_TRUE(wait_.is_napping());
  wait_for(0.1);
  EXPECT_FALSE(wait_.is_napping());
  EXPECT_EQ(wait_for(1.0), 0);
}

// Tries cost turns: over a minute on a shared core they are few.
TEST_F(AdaptiveWaitPolls, TriesLessAndLessOften) {
  double next_turn = wall + 3e-3;
  wait_.begin();
  const double end = wall + 60.0;
  int tries = 0;  // that found the core shared
  bool was_napping = false;
  while (wall < end) {
    wall += kPoll;
    on_core += kPoll;
    if (wait_.next() == Next::nap) {
      wall += 75e-6;
      next_turn = wall + 3e-3;  // who slept is given a core for a turn
    } else if (wall >= next_turn) {
      wall += 3e-3;
      next_turn = wall + 3e-3;
    }
    if (wait_.is_napping() && !was_napping) tries += 1;
    was_napping = wait_.is_napping();
  }
  EXPECT_GT(tries, 50);
  EXPECT_LT(tries, 80);
}

}  // namespace
}  // namespace trireme::comm

// Sections: nested time counted once, and everything adds up to the whole.
#include "base/timers.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>

namespace trireme {
namespace {

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

TEST(TimersRegion, InnerTimeIsNotTheOuters) {
  Timers timers;
  {
    const Region outer(timers, Section::forward);
    sleep_ms(5);
    {
      const Region inner(timers, Section::communication);
      sleep_ms(20);
    }
  }
  const auto seconds = timers.seconds();
  EXPECT_GE(seconds[static_cast<int>(Section::communication)], 0.020);
  EXPECT_GE(seconds[static_cast<int>(Section::forward)], 0.005);
  EXPECT_LT(seconds[static_cast<int>(Section::forward)], timers.total_seconds() - 0.019);
}

// Where a trace is given, and as long as it is.
TEST(TimersTrace, HasRegionsOneInsideTheOther) {
  Timers timers;
  Trace trace(3);
  { const Region before(timers, Section::data); }
  timers.trace_to(&trace);
  {
    const Region outer(timers, Section::forward,
                       {.name = "forward", .microbatch = 3, .chunk = 1});
    const Region inner(timers, Section::data);
    const Region hidden(timers, Section::communication, {.name = ""});
  }
  { const Region third(timers, Section::optimizer); }
  { const Region fourth(timers, Section::optimizer); }
  timers.trace_to(nullptr);
  { const Region after(timers, Section::data); }
  ASSERT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.lost(), 1u);
  const TraceEvent& inner = trace.events()[0];
  const TraceEvent& outer = trace.events()[1];
  EXPECT_STREQ(inner.name, "data");
  EXPECT_STREQ(outer.name, "forward");
  EXPECT_EQ(outer.microbatch, 3);
  EXPECT_EQ(outer.chunk, 1);
  EXPECT_LE(outer.begin, inner.begin);
  EXPECT_LE(inner.begin, inner.end);
  EXPECT_LE(inner.end, outer.end);
  EXPECT_STREQ(trace.events()[2].name, "optimizer");
}

TEST(TimersRegion, SumIsTotal) {
  Timers timers;
  for (int i = 0; i < 3; ++i) {
    const Region region(timers, Section::data);
    sleep_ms(1);
  }
  sleep_ms(2);
  const auto seconds = timers.seconds();
  const double total = timers.total_seconds();
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  EXPECT_NEAR(sum, total, 1e-3);
  EXPECT_GE(seconds[static_cast<int>(Section::other)], 0.002);
}

// Each second lies in one phase; the one before goes on behind an inner one.
TEST(TimersPhase, HoldsTheTimeOfItsLife) {
  Timers timers;
  const auto sum = [&timers](Phase phase) {
    const auto seconds = timers.seconds(phase);
    return std::accumulate(seconds.begin(), seconds.end(), 0.0);
  };
  {
    const PhaseRegion step(timers, Phase::step);
    const Region forward(timers, Section::forward);
    sleep_ms(3);
    {
      const PhaseRegion validation(timers, Phase::validation);
      sleep_ms(5);
    }
    sleep_ms(2);
  }
  sleep_ms(1);
  EXPECT_GE(sum(Phase::step), 0.005);
  EXPECT_GE(sum(Phase::validation), 0.005);
  EXPECT_GE(sum(Phase::other), 0.001);
  EXPECT_EQ(sum(Phase::sample), 0.0);
  EXPECT_NEAR(sum(Phase::step) + sum(Phase::validation) + sum(Phase::other),
              timers.total_seconds(), 1e-3);
  const auto all = timers.seconds();
  EXPECT_GE(all[static_cast<int>(Section::forward)], 0.010);
}

}  // namespace
}  // namespace trireme

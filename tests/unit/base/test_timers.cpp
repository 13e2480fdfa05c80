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

}  // namespace
}  // namespace trireme

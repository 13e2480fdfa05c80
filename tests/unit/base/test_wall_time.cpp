// Times of day as text.
#include "base/wall_time.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace trireme {
namespace {

TEST(WallTime, IsWrittenAsIso8601) {
  EXPECT_EQ(iso_time(0.0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(iso_time(1740832205.25), "2025-03-01T12:30:05.250Z");
  EXPECT_EQ(iso_time(951782399.9995), "2000-02-28T23:59:59.999Z");  // never 60 seconds
  EXPECT_NEAR(wall_seconds(), static_cast<double>(std::time(nullptr)), 2.0);
}

TEST(WallTime, GoesOnBesideTheClock) {
  const SteadyWallTime time;
  const auto now = SteadyWallTime::Clock::now();
  EXPECT_NEAR(time.now(), wall_seconds(), 60.0);
  EXPECT_NEAR(time.at(now + std::chrono::hours(1)) - time.at(now), 3600.0, 1e-3);
}

}  // namespace
}  // namespace trireme

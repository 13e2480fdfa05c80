// Learning rates at the first, the last and the turning updates, against numbers worked
// out by hand, and their shape in between.
#include "optim/lr_schedule.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.hpp"

namespace trireme::optim {
namespace {

using Kind = LrSchedule::Kind;
constexpr Kind kKinds[] = {Kind::cosine, Kind::linear, Kind::constant, Kind::inverse_sqrt,
                           Kind::wsd};

LrSchedule make(Kind kind, std::int64_t warmup, std::int64_t decay,
                std::int64_t cooldown = 0) {
  return {.kind = kind,
          .lr = 8e-3,
          .min_lr = 1e-3,
          .warmup = warmup,
          .decay = decay,
          .cooldown = cooldown};
}

void expect(const LrSchedule& schedule, std::int64_t update, double value) {
  EXPECT_NEAR(schedule.at(update), value, 1e-15 + 1e-14 * value) << "update " << update;
}

// Update k of W uses lr k / W, from the first one on; update W has the peak.
TEST(LrScheduleWarmup, IsLinearForEveryKind) {
  for (const Kind kind : kKinds) {
    const LrSchedule schedule = make(kind, 8, 100, 10);
    for (std::int64_t k = 1; k <= 8; ++k) {
      expect(schedule, k, 1e-3 * static_cast<double>(k));
    }
    EXPECT_EQ(schedule.at(8), 8e-3);
    EXPECT_LE(schedule.at(9), 8e-3);
    EXPECT_GT(schedule.at(9), 7e-3);  // no jump
  }
}

TEST(LrScheduleWarmup, OfNoneAndOfOne) {
  for (const Kind kind : kKinds) {
    expect(make(kind, 1, 100, 10), 1, 8e-3);
    // Without warm-up the first update is one step down the curve already.
    EXPECT_GT(make(kind, 0, 100, 10).at(1), 7.9e-3);
    EXPECT_LE(make(kind, 0, 100, 10).at(1), 8e-3);
  }
}

TEST(LrScheduleCosine, HalfWavesThirdAndEnd) {
  const LrSchedule schedule = make(Kind::cosine, 10, 70);
  expect(schedule, 10, 8e-3);
  expect(schedule, 30, 1e-3 + 7e-3 * 0.75);  // a third: (1 + cos 60) / 2
  expect(schedule, 40, 4.5e-3);              // half
  expect(schedule, 50, 1e-3 + 7e-3 * 0.25);  // two thirds
  expect(schedule, 11, 1e-3 + 7e-3 * 0.5 * (1 + std::cos(3.14159265358979323846 / 60)));
  expect(schedule, 70, 1e-3);
  expect(schedule, 71, 1e-3);
  expect(schedule, 1000000, 1e-3);
}

TEST(LrScheduleLinear, StraightDown) {
  const LrSchedule schedule = make(Kind::linear, 10, 80);
  expect(schedule, 10, 8e-3);
  expect(schedule, 11, 7.9e-3);
  expect(schedule, 45, 4.5e-3);
  expect(schedule, 79, 1.1e-3);
  expect(schedule, 80, 1e-3);
  expect(schedule, 81, 1e-3);
  expect(make(Kind::linear, 0, 70), 1, 7.9e-3);
}

TEST(LrScheduleConstant, StaysWhereverTheEndIs) {
  const LrSchedule schedule = make(Kind::constant, 4, 20);
  expect(schedule, 2, 4e-3);
  for (const std::int64_t k : {4, 5, 19, 20, 21, 100000}) expect(schedule, k, 8e-3);
}

TEST(LrScheduleInverseSqrt, FallsWithTheRoot) {
  const LrSchedule schedule = make(Kind::inverse_sqrt, 4, 1000);
  expect(schedule, 4, 8e-3);
  expect(schedule, 16, 4e-3);
  expect(schedule, 64, 2e-3);
  expect(schedule, 256, 1e-3);  // the floor is reached here
  expect(schedule, 257, 1e-3);
  expect(schedule, 100000, 1e-3);
  const LrSchedule cold = make(Kind::inverse_sqrt, 0, 1000);
  expect(cold, 1, 8e-3);
  expect(cold, 4, 4e-3);
}

TEST(LrScheduleWsd, FlatThenDownOverTheCooldown) {
  const LrSchedule schedule = make(Kind::wsd, 10, 100, 20);
  for (const std::int64_t k : {10, 11, 50, 79, 80}) expect(schedule, k, 8e-3);
  expect(schedule, 81, 8e-3 - 7e-3 / 20);
  expect(schedule, 90, 4.5e-3);
  expect(schedule, 99, 1e-3 + 7e-3 / 20);
  expect(schedule, 100, 1e-3);
  expect(schedule, 101, 1e-3);
  // Without a cooldown only the last update is small.
  expect(make(Kind::wsd, 10, 100, 0), 99, 8e-3);
  expect(make(Kind::wsd, 10, 100, 0), 100, 1e-3);
  // Cooling begins where the warm-up ends.
  expect(make(Kind::wsd, 10, 100, 90), 10, 8e-3);
  expect(make(Kind::wsd, 10, 100, 90), 55, 4.5e-3);
}

// Never above the peak; after the warm-up never up again and never below the minimum.
TEST(LrScheduleShape, IsMonotonous) {
  for (const Kind kind : kKinds) {
    for (const std::int64_t warmup : {0, 1, 7, 50}) {
      const LrSchedule schedule = make(kind, warmup, 60, 10);
      for (std::int64_t k = 1; k < 200; ++k) {
        const double now = schedule.at(k), next = schedule.at(k + 1);
        ASSERT_LE(now, 8e-3);
        if (k >= warmup) {
          ASSERT_LE(next, now) << k;
          ASSERT_GE(next, 1e-3) << k;
        } else {
          ASSERT_GT(next, now) << k;
        }
      }
    }
  }
}

// A schedule that ends with its warm-up, or before it: the minimum follows.
TEST(LrScheduleShape, DecayNoLongerThanTheWarmup) {
  expect(make(Kind::cosine, 10, 10), 10, 8e-3);
  expect(make(Kind::cosine, 10, 10), 11, 1e-3);
  expect(make(Kind::linear, 10, 5), 11, 1e-3);
}

TEST(LrScheduleErrors, UpdatesCountFromOne) {
  for (const std::int64_t update : {0, -1}) {
    EXPECT_THAT(
        [&] { make(Kind::cosine, 0, 10).at(update); },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("updates count from 1")));
  }
}

}  // namespace
}  // namespace trireme::optim

// Clocks of ranks brought together.
#include "report/step_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(StepTraceSteps, OneOrTwoNumbers) {
  const TraceOptions two = parse_trace_steps("3-17", "a.json");
  EXPECT_EQ(two.path, "a.json");
  EXPECT_EQ(two.first, 3);
  EXPECT_EQ(two.last, 17);
  const TraceOptions one = parse_trace_steps("5", "a.json");
  EXPECT_EQ(one.first, 5);
  EXPECT_EQ(one.last, 5);
  for (const char* bad : {"", "-", "0-3", "4-2", "-3", "3-", "a-b", "1-2-3", "1 - 2"}) {
    EXPECT_THAT([&] { parse_trace_steps(bad, "a.json"); },
                ThrowsMessage<InputError>(HasSubstr("--trace-steps 2-4")))
        << bad;
  }
}

TEST(StepTraceClock, IsALineBetweenTwoReadings) {
  // Runs 100 s behind, and one part in a hundred too fast.
  const ClockReading before{.own = 10.0, .reference = 110.0};
  const ClockReading after{.own = 20.2, .reference = 120.0};
  EXPECT_DOUBLE_EQ(reference_time(10.0, before, after), 110.0);
  EXPECT_DOUBLE_EQ(reference_time(20.2, before, after), 120.0);
  EXPECT_NEAR(reference_time(15.1, before, after), 115.0, 1e-12);
  // Outside of the readings the offset of the nearer one.
  EXPECT_DOUBLE_EQ(reference_time(9.0, before, after), 109.0);
  EXPECT_DOUBLE_EQ(reference_time(21.2, before, after), 121.0);
  EXPECT_DOUBLE_EQ(reference_time(5.0, before, before), 105.0);
}

TEST(StepTraceClock, OfOneRankIsItsOwn) {
  const auto self = comm::make_self_communicator("world");
  const ClockReading reading = read_clock(*self);
  EXPECT_EQ(reading.own, reading.reference);
  EXPECT_EQ(reading.error, 0.0);
}

}  // namespace
}  // namespace trireme::report

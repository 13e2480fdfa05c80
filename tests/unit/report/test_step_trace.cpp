// Which steps a timeline has.
#include "report/step_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

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

}  // namespace
}  // namespace trireme::report

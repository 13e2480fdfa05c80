// Stretches of a queue's work: how long they took, and a trace that shows them.
#include "base/queue_spans.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/late_queue.hpp"
#include "base/timers.hpp"

namespace trireme {
namespace {

using Clock = DeviceClock::Clock;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}
double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

TEST(QueueSpans, AreHandedOverOldestFirst) {
  QueueSpans spans(Exec(), "kernels");
  const std::int64_t outer = spans.begin({.kind = 7});
  const std::int64_t inner =
      spans.begin({.name = "forward", .microbatch = 2, .chunk = 1, .is_counted = true});
  sleep_ms(20);
  spans.end(inner);
  spans.take([](const auto&, double) { FAIL() << "the first one is open"; });
  sleep_ms(10);
  spans.end(outer);
  const std::int64_t open = spans.begin({.name = "open"});
  std::vector<std::string> names;
  std::vector<double> seconds;
  spans.settle([&](const QueueSpans::Label& label, double taken) {
    names.emplace_back(label.name);
    seconds.push_back(taken);
    EXPECT_EQ(label.is_counted, names.size() == 2);
    EXPECT_EQ(label.kind, names.size() == 1 ? 7 : 0);
  });
  ASSERT_EQ(names, (std::vector<std::string>{"", "forward"}));
  if (kHostExecution) {  // sleeping is no work of a device
    EXPECT_GE(seconds[0], 0.030);
    EXPECT_GE(seconds[1], 0.020);
  }
  EXPECT_GE(seconds[0], seconds[1]);
  spans.end(open);
  int left = 0;
  spans.settle([&](const auto&, double) { ++left; });
  EXPECT_EQ(left, 1);
}

TEST(QueueSpans, OfPassesOnShapesThereAreNone) {
  QueueSpans spans(Exec::shape_only(), "kernels");
  spans.end(spans.begin({.name = "forward"}));
  spans.settle([](const auto&, double) { FAIL(); });
}

// Whether they were taken meanwhile or not, and on a host where launches come late.
TEST(QueueSpans, AreAllInATrace) {
  const Exec exec;
  make_late(exec);
  QueueSpans spans(exec, "kernels");
  Timers timers;
  spans.show_in(timers.trace_sources());
  for (int recording = 0; recording < 2; ++recording) {
    SCOPED_TRACE(recording);
    spans.end(spans.begin({.name = "before"}));
    Trace trace(100);
    timers.begin_trace(trace);
    const auto begin = Clock::now();
    for (int m = 0; m < 5; ++m) {
      const std::int64_t hidden = spans.begin({});
      const std::int64_t span =
          spans.begin({.name = "forward", .microbatch = m, .chunk = 0});
      sleep_ms(5);
      spans.end(span);
      spans.end(hidden);
      if (m == 2) spans.take([](const auto&, double) {});
    }
    const auto end = Clock::now();
    timers.end_trace();
    spans.end(spans.begin({.name = "after"}));
    ASSERT_EQ(trace.events().size(), 5u);
    for (int m = 0; m < 5; ++m) {
      const TraceEvent& event = trace.events()[static_cast<std::size_t>(m)];
      EXPECT_STREQ(event.name, "forward");
      EXPECT_STREQ(event.group, "kernels");
      EXPECT_EQ(event.microbatch, m);
      EXPECT_GE(seconds_between(begin, event.begin), -1e-3);
      EXPECT_GE(seconds_between(event.end, end), -1e-3);
      if (kHostExecution) {
        EXPECT_GE(seconds_between(event.begin, event.end), 0.004);
      }
    }
  }
}

// There a trace has the regions, and nothing twice.
TEST(QueueSpans, OfAHostAreInNoTrace) {
  if (!kHostExecution) return;
  QueueSpans spans(Exec(), "kernels");
  Timers timers;
  spans.show_in(timers.trace_sources());
  Trace trace(10);
  timers.begin_trace(trace);
  spans.end(spans.begin({.name = "forward"}));
  timers.end_trace();
  EXPECT_EQ(trace.events().size(), 0u);
}

TEST(QueueSpansDeviceClock, IsALineBetweenTwoReadings) {
  const auto origin = Clock::now();
  const auto device_of = [&](Clock::time_point time) {
    return 7.0 + 1.25 * seconds_between(origin, time);
  };
  DeviceClock clock;
  clock.begin([&] { return device_of(Clock::now()); });
  sleep_ms(150);
  clock.end([&] { return device_of(Clock::now()); });
  for (const int ms : {-50, 0, 70, 150, 300}) {
    const auto time = origin + std::chrono::milliseconds(ms);
    EXPECT_NEAR(seconds_between(time, clock.host_time(device_of(time))), 0.0, 2e-4) << ms;
  }
}

}  // namespace
}  // namespace trireme

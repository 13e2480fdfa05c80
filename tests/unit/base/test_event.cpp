// Marks in queues: what is past when, who waits, and the seconds between two of them.
#include "base/event.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "base/queue.hpp"

namespace trireme {
namespace {

constexpr index_t kCount = index_t{1} << 20;

struct Fill {
  View1<float> values;
  float value;
  KOKKOS_FUNCTION void operator()(index_t i) const { values(i) = value; }
};
struct AddOne {
  View1<const float> from;
  View1<float> to;
  KOKKOS_FUNCTION void operator()(index_t i) const { to(i) = from(i) + 1.0f; }
};

float last_of(const DeviceArray<float>& values) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), values)(kCount - 1);
}

TEST(Event, NobodyWaitsForWhatWasNeverRecorded) {
  const Event event;
  const Exec exec;
  EXPECT_FALSE(event.is_recorded());
  EXPECT_TRUE(event.is_past());
  event.hold_up(exec);
  event.wait();
}

TEST(Event, PassesOnShapesOnlyRecordNothing) {
  Event event(Event::Time::kept);
  event.record(Exec::shape_only());
  EXPECT_FALSE(event.is_recorded());
}

TEST(Event, IsPastWhenTheHostHasWaitedForIt) {
  const Exec exec;
  const DeviceArray<float> values("values", kCount);
  launch(exec, "trireme::test::fill", kCount, Fill{values, 3.0f});
  Event event;
  event.record(exec);
  event.wait();
  EXPECT_TRUE(event.is_recorded());
  EXPECT_TRUE(event.is_past());
  EXPECT_EQ(last_of(values), 3.0f);
}

TEST(Event, HoldsUpAnotherQueue) {
  const Exec exec;
  const Exec other = make_queue(QueuePriority::high);
  const DeviceArray<float> from("from", kCount), to("to", kCount);
  for (int round = 0; round < 20; ++round) {
    const auto value = static_cast<float>(round);
    launch(exec, "trireme::test::fill", kCount, Fill{from, value});
    Event filled;
    filled.record(exec);
    filled.hold_up(other);
    launch(other, "trireme::test::add_one", kCount, AddOne{from, to});
    Event added;
    added.record(other);
    added.hold_up(exec);  // the next round writes what this one reads
    added.wait();
    ASSERT_EQ(last_of(to), value + 1.0f);
  }
}

TEST(Event, SecondsAreThoseBetweenTwoMarks) {
  const Exec exec;
  const DeviceArray<float> values("values", kCount);
  Event begin(Event::Time::kept), middle(Event::Time::kept), end(Event::Time::kept);
  begin.record(exec);
  launch(exec, "trireme::test::fill", kCount, Fill{values, 1.0f});
  middle.record(exec);
  launch(exec, "trireme::test::fill", kCount, Fill{values, 2.0f});
  end.record(exec);
  end.wait();
  const double whole = end.seconds_since(begin), first = middle.seconds_since(begin);
  EXPECT_GT(first, 0.0);
  EXPECT_GT(whole, first);
  EXPECT_NEAR(whole, first + end.seconds_since(middle), 1e-5);
}

TEST(Event, SecondsWantTwoRecordedMarksWithTime) {
  const Exec exec;
  Event without, with(Event::Time::kept), never(Event::Time::kept);
  without.record(exec);
  with.record(exec);
  with.wait();
  EXPECT_THROW(with.seconds_since(without), Error);
  EXPECT_THROW(without.seconds_since(with), Error);
  EXPECT_THROW(never.seconds_since(with), Error);
}

TEST(Event, MovesWithItsMark) {
  const Exec exec;
  Event first;
  first.record(exec);
  const Event second = std::move(first);
  EXPECT_TRUE(second.is_recorded());
}

}  // namespace
}  // namespace trireme

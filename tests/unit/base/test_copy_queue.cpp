// A queue of copies beside kernels: what it copies is what there was, if whoever writes
// next is held up.
#include "base/copy_queue.hpp"

#include <gtest/gtest.h>

#include "base/late_queue.hpp"
#include "base/pinned.hpp"
#include "base/timers.hpp"

namespace trireme {
namespace {

constexpr index_t kCopied = index_t{1} << 16;

struct FillCopied {
  View1<float> values;
  float value;
  KOKKOS_FUNCTION void operator()(index_t i) const { values(i) = value; }
};

void fill_copied(const Exec& exec, const DeviceArray<float>& values, float value) {
  launch(exec, "trireme::test::fill", kCopied, FillCopied{values, value});
}

TEST(CopyQueue, NothingIsWaitedForBeforeTheFirstCopy) {
  const CopyQueue queue;
  EXPECT_FALSE(queue.done().is_recorded());
  queue.done().hold_up(Exec());
  queue.done().wait();
}

TEST(CopyQueue, CopiesWhatWasThereWhenItBegan) {
  const Exec exec;
  CopyQueue queue;
  const DeviceArray<float> values("values", kCopied);
  const PinnedArray<float> copied("copied", kCopied);
  const RowCopy copy{.to = reinterpret_cast<std::byte*>(copied.data()),
                     .from = reinterpret_cast<const std::byte*>(values.data()),
                     .row_bytes = kCopied * sizeof(float)};
  for (int i = 1; i <= 5; ++i) {
    const auto now = static_cast<float>(i);
    fill_copied(exec, values, now);
    queue.start(exec, {&copy, 1});
    queue.done().hold_up(exec);
    fill_copied(exec, values, -now);
    queue.done().wait();
    EXPECT_TRUE(queue.done().is_past());
    EXPECT_EQ(copied(0), now);
    EXPECT_EQ(copied(kCopied - 1), now);
  }
}

TEST(CopyQueue, TracesShowItsCopies) {
  const Exec exec;
  make_late(exec);
  Timers timers;
  exec.set_timers(&timers);
  CopyQueue queue;
  const DeviceArray<float> values("values", kCopied);
  const PinnedArray<float> copied("copied", kCopied);
  const RowCopy copy{.to = reinterpret_cast<std::byte*>(copied.data()),
                     .from = reinterpret_cast<const std::byte*>(values.data()),
                     .row_bytes = kCopied * sizeof(float)};
  queue.start(exec, {&copy, 1});
  Trace trace(10);
  timers.begin_trace(trace);
  for (int i = 0; i < 3; ++i) queue.start(exec, {&copy, 1});
  timers.end_trace();
  queue.start(exec, {&copy, 1});
  queue.done().wait();
  exec.set_timers(nullptr);
  ASSERT_EQ(trace.events().size(), 3u);
  for (const TraceEvent& event : trace.events()) {
    EXPECT_STREQ(event.group, "copies");
    EXPECT_STREQ(event.name, "copy");
    EXPECT_LE(event.begin, event.end);
  }
}

}  // namespace
}  // namespace trireme

// Late queues show the waits that are missing: that is what they are for.
#include "base/late_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/copy_queue.hpp"
#include "base/error.hpp"
#include "base/event.hpp"
#include "base/pinned.hpp"
#include "base/queue.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class LateQueue : public ::testing::Test {
 protected:
  LateQueue() { make_late(exec_); }

  void fill(float value) { Kokkos::deep_copy(exec_.space(), device_, value); }

  Exec exec_;
  DeviceArray<float> device_{"device", 3};
  PinnedArray<float> host_{"host", 3};
  RowCopy all_{.to = reinterpret_cast<std::byte*>(host_.data()),
               .from = reinterpret_cast<const std::byte*>(device_.data()),
               .row_bytes = 3 * sizeof(float)};
};

TEST_F(LateQueue, IsAsynchronousWithItsCopies) {
  EXPECT_TRUE(is_asynchronous(exec_));
  EXPECT_TRUE(is_asynchronous(Exec(exec_)));
  EXPECT_FALSE(is_asynchronous(Exec()));
  EXPECT_TRUE(is_asynchronous(make_copy_queue(exec_)));
  EXPECT_FALSE(is_asynchronous(make_copy_queue(Exec())));
}

TEST_F(LateQueue, WhoDoesNotWaitReadsNothing) {
  fill(2.0f);
  copy_to_host(exec_, host_.data(), device_);
  Event behind;
  behind.record(exec_);
  EXPECT_FALSE(behind.is_past());
  EXPECT_TRUE(std::isnan(host_(0)));
  fill(3.0f);  // behind the copy in the queue
  behind.wait();
  EXPECT_TRUE(behind.is_past());
  EXPECT_EQ(host_(0), 2.0f);
}

TEST_F(LateQueue, AnEventBeforeTheCopyIsNotEnough) {
  Event before;
  before.record(exec_);
  copy_to_host(exec_, host_.data(), device_);
  before.wait();
  EXPECT_TRUE(std::isnan(host_(0)));
}

TEST_F(LateQueue, SaysWhereABufferIsWrittenTooEarly) {
  Event behind;
  copy_to_device(exec_, device_, host_.data());
  behind.record(exec_);
  host_(1) = 1.0f;
  EXPECT_THAT([&] { behind.wait(); },
              ThrowsMessage<Error>(HasSubstr("12 bytes of pinned memory were written")));
  copy_to_device(exec_, device_, host_.data());
  behind.record(exec_);
  behind.wait();
  host_(1) = 2.0f;  // now it may be
}

TEST_F(LateQueue, CopiesBesideKernelsSeeWhatTheseWrite) {
  CopyQueue queue;
  fill(1.0f);
  queue.start(exec_, {&all_, 1});
  EXPECT_FALSE(queue.done().is_past());
  fill(2.0f);  // too early
  queue.done().wait();
  EXPECT_EQ(host_(0), 2.0f);

  queue.start(exec_, {&all_, 1});
  queue.done().hold_up(exec_);
  fill(3.0f);
  queue.done().wait();
  EXPECT_EQ(host_(0), 2.0f);
}

// A queue of copies that is held up by one that is late waits for it, but not at once.
TEST_F(LateQueue, WaitsInTurn) {
  CopyQueue queue;
  PinnedArray<float> report("report", 3);
  fill(1.0f);
  copy_to_host(exec_, report.data(), device_);
  queue.start(exec_, {&all_, 1});
  EXPECT_TRUE(std::isnan(report(0)));
  queue.done().wait();
  EXPECT_EQ(report(0), 1.0f);
  EXPECT_EQ(host_(0), 1.0f);
}

TEST_F(LateQueue, RowsAreTakenAsTheyWere) {
  fill(1.0f);
  copy_rows_to_host(exec_, {&all_, 1});
  fill(2.0f);
  Event behind;
  behind.record(exec_);
  behind.wait();
  EXPECT_EQ(host_(2), 1.0f);
}

}  // namespace
}  // namespace trireme

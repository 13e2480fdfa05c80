// Micro-batches through a few buffers: none is written before its copy is past, and
// nobody waits while there are others.
#include "step/batch_staging.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/late_queue.hpp"

namespace trireme::step {
namespace {

constexpr std::size_t kBytes = 1000;

std::byte last_of(const DeviceArray<std::byte>& array) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array)(kBytes - 1);
}

// On a late queue a buffer that is written too early throws.
TEST(BatchStaging, BuffersAreFilledAgainOnceTheirCopiesArePast) {
  const Exec exec;
  make_late(exec);
  BatchStaging staging(kBytes, 3);
  const DeviceArray<std::byte> batch("batch", kBytes);
  std::set<const std::byte*> buffers;
  for (int i = 0; i < 7; ++i) {
    std::byte* const buffer = staging.next();
    buffers.insert(buffer);
    std::fill_n(buffer, kBytes, static_cast<std::byte>(i));
    staging.send(exec, batch);
  }
  EXPECT_EQ(buffers.size(), 3u);
  Event end;
  end.record(exec);
  end.wait();
  EXPECT_EQ(last_of(batch), static_cast<std::byte>(6));
}

// Two steps of four micro-batches: the host launches both, and no copy was waited for.
TEST(BatchStaging, NobodyWaitsWithinTwoSteps) {
  const Exec exec;
  make_late(exec);
  BatchStaging staging(kBytes, BatchStaging::buffers_of_steps(4, kBytes));
  const DeviceArray<std::byte> batch("batch", kBytes);
  for (int i = 0; i < 8; ++i) {
    std::fill_n(staging.next(), kBytes, static_cast<std::byte>(i));
    staging.send(exec, batch);
  }
  const auto is_one_copied = [&] { return late_work(exec)->is_done(1); };
  EXPECT_TRUE(!kHostExecution || !is_one_copied());
  staging.next();  // of the third step
  EXPECT_TRUE(!kHostExecution || is_one_copied());
  exec.fence("end of the test");
}

TEST(BatchStaging, HasABoundedNumberOfBuffers) {
  EXPECT_EQ(BatchStaging::buffers_of_steps(1, kBytes), 2u);
  EXPECT_EQ(BatchStaging::buffers_of_steps(16, 1 << 20), 32u);
  EXPECT_EQ(BatchStaging::buffers_of_steps(512, 1 << 20), 64u);
  EXPECT_EQ(BatchStaging::buffers_of_steps(512, std::size_t{1} << 30),
            BatchStaging::kFewest);
}

}  // namespace
}  // namespace trireme::step

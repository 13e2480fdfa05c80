// Micro-batches through two buffers: none is written before its copy is past.
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
  BatchStaging staging(kBytes);
  const DeviceArray<std::byte> batch("batch", kBytes);
  std::set<const std::byte*> buffers;
  for (int i = 0; i < 7; ++i) {
    std::byte* const buffer = staging.next();
    buffers.insert(buffer);
    std::fill_n(buffer, kBytes, static_cast<std::byte>(i));
    staging.send(exec, batch);
  }
  EXPECT_EQ(buffers.size(), BatchStaging::kBuffers);
  Event end;
  end.record(exec);
  end.wait();
  EXPECT_EQ(last_of(batch), static_cast<std::byte>(6));
}

}  // namespace
}  // namespace trireme::step

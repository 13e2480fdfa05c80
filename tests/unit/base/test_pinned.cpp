// Copies between pinned and device memory: what arrives, of rows with gaps, too.
#include "base/pinned.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/event.hpp"
#include "base/queue.hpp"

namespace trireme {
namespace {

using Words = std::vector<std::uint32_t>;

PinnedArray<std::uint32_t> counted(std::size_t count) {
  PinnedArray<std::uint32_t> array("counted", count);
  for (std::size_t i = 0; i < count; ++i) array(i) = static_cast<std::uint32_t>(i) + 1;
  return array;
}

Words content(const PinnedArray<std::uint32_t>& array) {
  return Words(array.data(), array.data() + array.extent(0));
}

void wait_for(const Exec& exec) {
  Event event;
  event.record(exec);
  event.wait();
}

TEST(Pinned, GoesToTheDeviceAndBack) {
  const Exec exec;
  for (const std::size_t count : {1u, 31u, 257u, 1u << 20}) {
    const PinnedArray<std::uint32_t> from = counted(count), to("to", count);
    const DeviceArray<std::uint32_t> there("there", count);
    copy_to_device(exec, there, from.data());
    copy_to_host(exec, to.data(), there);
    wait_for(exec);
    EXPECT_EQ(content(to), content(from)) << count;
  }
}

TEST(Pinned, NothingIsCopiedOfNothing) {
  copy_to_device(Exec(), View1<double>(), nullptr);
  copy_to_host(Exec(), nullptr, View1<const double>());
}

TEST(Pinned, CopiesOfPassesOnShapesAreCountedOnly) {
  Tally tally;
  const Exec exec = Exec::shape_only(tally);
  copy_to_device(exec, View1<double>(nullptr, 5), nullptr);
  copy_to_host(exec, nullptr, View1<double>(nullptr, 5));
  EXPECT_EQ(tally.total().calls, 2);
  EXPECT_EQ(tally.total().cost.bytes, 2 * 2 * 5 * 8);
}

// Rows of 3 of 7 words, behind a first word that is left out; then more than a thread
// takes, and what lies in one piece.
TEST(Pinned, RowsLoseTheirGaps) {
  const Exec exec;
  constexpr std::size_t kStride = 7, kWidth = 3, kMost = 100000;
  const PinnedArray<std::uint32_t> from = counted(kStride * kMost);
  const DeviceArray<std::uint32_t> there("there", from.extent(0));
  copy_to_device(exec, there, from.data());
  const auto* const begin = reinterpret_cast<const std::byte*>(there.data() + 1);
  for (const std::size_t rows : {std::size_t{1}, std::size_t{5}, kMost}) {
    for (const std::size_t stride : {kWidth, kStride}) {
      PinnedArray<std::uint32_t> to("to", rows * kWidth);
      const std::array copies = {RowCopy{reinterpret_cast<std::byte*>(to.data()), begin,
                                         rows, 4 * kWidth, 4 * stride},
                                 RowCopy{}};
      copy_rows_to_host(exec, copies);
      wait_for(exec);
      Words wanted;
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t i = 0; i < kWidth; ++i) {
          wanted.push_back(static_cast<std::uint32_t>(row * stride + i + 2));
        }
      }
      ASSERT_EQ(content(to), wanted) << rows << " rows, stride " << stride;
    }
  }
}

TEST(Pinned, AHostCopiesRowsByItself) {
  const PinnedArray<std::uint32_t> from = counted(12);
  Words to(6);
  const RowCopy copy{reinterpret_cast<std::byte*>(to.data()),
                     reinterpret_cast<const std::byte*>(from.data()), 3, 8, 16};
  copy_rows({&copy, 1});
  EXPECT_EQ(to, (Words{1, 2, 5, 6, 9, 10}));
}

TEST(Pinned, AnExecSaysWhetherWorkGoesOnBehindLaunches) {
  EXPECT_EQ(is_asynchronous(Exec()), !kHostExecution);
  EXPECT_FALSE(is_asynchronous(Exec::shape_only()));
}

}  // namespace
}  // namespace trireme

// Rows of a run's memory: each category where it belongs, of devices that are made up.
#include "run/memory_uses.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::run {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kMiB = std::size_t{1} << 20;

MATCHER_P3(IsRow, name, planned, measured, "") {
  return arg.name == name && arg.planned == static_cast<double>(planned) &&
         arg.measured == static_cast<double>(measured);
}

TEST(MemoryUses, OfAStepAreByCategory) {
  step::MemoryUse use;
  use.planned.weights = 7 * kMiB;
  use.planned.workspace.saved = {3 * kMiB};
  use.planned.workspace.slots = {2};
  use.planned.workspace.scratch = kMiB;
  use.planned.products = 32 * kMiB;
  use.measured = use.planned;
  use.measured.batch = 5 * kMiB;
  EXPECT_THAT(
      memory_uses(use),
      ElementsAre(IsRow("weights", 7 * kMiB, 7 * kMiB), IsRow("gradients", 0, 0),
                  IsRow("optimizer", 0, 0), IsRow("activations", 6 * kMiB, 6 * kMiB),
                  IsRow("scratch", kMiB, kMiB), IsRow("batch", 0, 5 * kMiB),
                  IsRow("buffers", 0, 0), IsRow("products", 32 * kMiB, 32 * kMiB)));
}

// The last row is planned as the sum of all that is on the device.
TEST(MemoryUses, OfADeviceHaveWhatLibrariesTake) {
  const plan::LibraryBytes planned{.messages = 441 * kMiB, .context = 640 * kMiB};
  const plan::LibraryBytes measured{.messages = 500 * kMiB, .context = 600 * kMiB};
  const auto bytes = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  EXPECT_THAT(device_uses(planned, measured, 3000 * kMiB,
                          {.free = bytes(36'000 * kMiB), .total = bytes(40'000 * kMiB)}),
              ElementsAre(IsRow("messages", 441 * kMiB, 500 * kMiB),
                          IsRow("context", 640 * kMiB, 600 * kMiB),
                          IsRow("device", 4081 * kMiB, 4000 * kMiB)));
}

TEST(MemoryUses, WithoutADeviceThereAreNone) {
  EXPECT_THAT(device_uses({}, {}, 3000 * kMiB, {}), IsEmpty());
}

}  // namespace
}  // namespace trireme::run

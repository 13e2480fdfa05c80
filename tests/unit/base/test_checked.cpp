// Integers of files: no product or conversion wraps around.
#include <gtest/gtest.h>

#include <limits>

#include "base/checked.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

TEST(Checked, Products) {
  EXPECT_EQ(checked_multiply<std::int64_t>(1 << 30, 3), 3221225472);
  EXPECT_FALSE(checked_multiply<std::int64_t>(std::int64_t{1} << 62, 4));
  EXPECT_FALSE(checked_multiply<std::int64_t>(kLeast, -1));
  EXPECT_FALSE(checked_multiply(~std::uint64_t{0}, std::uint64_t{2}));
}

TEST(Checked, Conversions) {
  EXPECT_EQ(checked_cast<std::int64_t>(~std::uint64_t{0} / 2), kMost);
  EXPECT_FALSE(checked_cast<std::int64_t>(~std::uint64_t{0} / 2 + 1));
  EXPECT_FALSE(checked_cast<std::uint64_t>(std::int64_t{-1}));
  EXPECT_FALSE(checked_cast<int>(std::int64_t{1} << 31));
}

TEST(Checked, Ranges) {
  EXPECT_TRUE(is_range_within<std::int64_t>(3, 4, 7));
  EXPECT_TRUE(is_range_within<std::int64_t>(7, 0, 7));
  EXPECT_FALSE(is_range_within<std::int64_t>(3, 5, 7));
  EXPECT_FALSE(is_range_within<std::int64_t>(-1, 2, 7));
  EXPECT_FALSE(is_range_within<std::int64_t>(2, -1, 7));
  EXPECT_FALSE(is_range_within<std::int64_t>(2, kMost, 7));
  EXPECT_FALSE(is_range_within(~std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{7}));
}

}  // namespace
}  // namespace trireme

// Numbers of things: one, none, many, and words whose plural is their own.
#include "base/plural.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace trireme {
namespace {

TEST(Plural, GroupsDigits) {
  EXPECT_EQ(format_grouped(0), "0");
  EXPECT_EQ(format_grouped(999), "999");
  EXPECT_EQ(format_grouped(-1000), "-1,000");
  EXPECT_EQ(format_grouped(-100), "-100");
  EXPECT_EQ(format_grouped(9830400), "9,830,400");
  EXPECT_EQ(format_grouped(std::numeric_limits<std::int64_t>::min()),
            "-9,223,372,036,854,775,808");
}

TEST(Plural, OneIsNoPlural) {
  EXPECT_EQ(format_plural(1, "rank"), "1 rank");
  EXPECT_EQ(format_plural(0, "rank"), "0 ranks");
  EXPECT_EQ(format_plural(9830, "rank"), "9,830 ranks");
  EXPECT_EQ(format_plural(1, "batch", "batches"), "1 batch");
  EXPECT_EQ(format_plural(1200, "batch", "batches"), "1,200 batches");
}

}  // namespace
}  // namespace trireme

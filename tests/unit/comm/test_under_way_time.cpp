// The time in which at least one message was under way, against a plain count of it.
#include "comm/under_way_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace trireme::comm {
namespace {

TEST(UnderWayTime, CountsEachMomentOnce) {
  UnderWayTime time;
  EXPECT_EQ(time.seconds(), 0.0);
  time.add(1.0, 2.0);
  time.add(4.0, 5.0);
  EXPECT_DOUBLE_EQ(time.seconds(), 2.0);
  time.add(1.5, 2.5);  // longer
  EXPECT_DOUBLE_EQ(time.seconds(), 2.5);
  time.add(4.2, 4.8);  // within
  EXPECT_DOUBLE_EQ(time.seconds(), 2.5);
  time.add(2.5, 4.0);  // closes the gap
  EXPECT_DOUBLE_EQ(time.seconds(), 4.0);
  time.add(0.0, 9.0);  // around all
  EXPECT_DOUBLE_EQ(time.seconds(), 9.0);
  time.add(7.0, 7.0);
  time.add(12.0, 11.0);  // nothing
  EXPECT_DOUBLE_EQ(time.seconds(), 9.0);
}

// Stretches in whole units, which a row of flags can count.
TEST(UnderWayTime, AgreesWithAPlainCount) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    UnderWayTime time;
    std::vector<bool> is_covered(20000);
    int now = 0;
    for (int i = 0; i < 1000; ++i) {
      now += static_cast<int>(random() % 15);
      const int begin = std::max(0, now - static_cast<int>(random() % 60));
      const int end = now + static_cast<int>(random() % 10);
      time.add(begin, end);
      for (int at = begin; at < end; ++at)
        is_covered[static_cast<std::size_t>(at)] = true;
    }
    EXPECT_DOUBLE_EQ(time.seconds(),
                     std::count(is_covered.begin(), is_covered.end(), true));
  }
}

// Far more stretches than are kept, none of which touch.
TEST(UnderWayTime, SumsWhatIsOld) {
  UnderWayTime time;
  for (int i = 0; i < 1000; ++i) time.add(2.0 * i, 2.0 * i + 1.0);
  EXPECT_DOUBLE_EQ(time.seconds(), 1000.0);
}

}  // namespace
}  // namespace trireme::comm

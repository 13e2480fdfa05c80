// Times of operations of one step that are waited for in the next one, and later.
#include "comm/message_times.hpp"

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using std::chrono::seconds;

TEST(MessageTimes, WhatWasBegunIsWaitedForBehindTheEndOfItsStep) {
  const MessageTime::Time zero;
  MessageTimes times(2);
  const std::int64_t first = times.add({.begin = zero});
  times.close();
  EXPECT_FALSE(times.has_room()) << "of the next step nothing is added";
  times.note_wait(first, zero + seconds(1), zero + seconds(2));
  EXPECT_EQ(times.all().at(0).end, zero + seconds(2));
  times.clear();
  EXPECT_TRUE(times.has_room());
  const std::int64_t second = times.add({.begin = zero});
  // Late for its own step, and no part of this one.
  times.note_wait(first, zero + seconds(3), zero + seconds(4));
  times.set(first, zero, zero + seconds(3), zero + seconds(4));
  EXPECT_EQ(times.all().at(0).end, zero);
  times.set(second, zero + seconds(1), zero + seconds(5), zero + seconds(4));
  EXPECT_EQ(times.all().at(0).begun, zero + seconds(1));
  EXPECT_EQ(times.all().at(0).end, zero + seconds(5)) << "it was there before";
  times.add({.begin = zero});
  EXPECT_FALSE(times.has_room());
}

}  // namespace
}  // namespace trireme::comm

// Time on cores and time waiting for them: two threads on one core wait half of the time.
#include "base/core_time.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/host_cores.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

// Threads that spin on the first core for so long.
CoreTime spin(int threads, std::chrono::milliseconds duration) {
  const int core = allowed_cores().at(0);
  const CoreTime before = read_core_time();
  CoreTime after;
  std::vector<std::thread> others;
  const auto end = Clock::now() + duration;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([=] {
      stay_on(core);
      while (Clock::now() < end) {
      }
      // What a thread did is known while it lives.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
  }
  std::thread last([&] {
    stay_on(core);
    while (Clock::now() < end) {
    }
    after = read_core_time();
  });
  last.join();
  for (std::thread& other : others) other.join();
  return after - before;
}

TEST(CoreTime, ThreadsOnOneCoreWaitForEachOther) {
  const CoreTime time = spin(4, std::chrono::milliseconds(400));
  EXPECT_GT(time.ran, 0.0);
  EXPECT_GT(time.waited, time.ran) << "of four threads three wait at any time";
  EXPECT_GT(time.waiting_share(), 0.5);
}

TEST(CoreTime, ReadyThreadsAreCounted) {
  if (count_ready_threads() == 0) GTEST_SKIP() << "the system does not say";
  constexpr int kOthers = 8;
  std::atomic<bool> is_done = false;
  std::vector<std::thread> others;
  for (int i = 0; i < kOthers; ++i) {
    others.emplace_back([&] {
      while (!is_done) {
      }
    });
  }
  int most = 0;
  const auto end = Clock::now() + std::chrono::seconds(10);
  while (most <= kOthers && Clock::now() < end) {
    most = std::max(most, count_ready_threads());
  }
  EXPECT_TRUE(are_cores_wanted(kMostHostCores));
  is_done = true;
  for (std::thread& other : others) other.join();
  EXPECT_GT(most, kOthers) << "the others and this one";
}

TEST(CoreTime, SleepIsNoWaiting) {
  const CoreTime before = read_core_time();
  const double cpu = thread_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(thread_cpu_seconds() - cpu, 0.1);
  EXPECT_LT((read_core_time() - before).waited, 0.15);
}

TEST(CoreTime, SharesOfNothingAreNone) {
  EXPECT_EQ(CoreTime().waiting_share(), 0.0);
  EXPECT_EQ(CoreTime().stolen_share(), 0.0);
  EXPECT_DOUBLE_EQ((CoreTime{3.0, 1.0, 1.0, 8.0}).waiting_share(), 0.25);
  EXPECT_DOUBLE_EQ((CoreTime{3.0, 1.0, 1.0, 8.0}).stolen_share(), 0.125);
}

}  // namespace
}  // namespace trireme

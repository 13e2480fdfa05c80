// The cores of a thread, under a binding too.
#include "base/host_cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <thread>

namespace trireme {
namespace {

TEST(HostCores, AreThoseOfTheBinding) {
  const std::vector<int> all = allowed_cores();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  std::vector<int> bound;
  std::thread([&] {  // a binding of its own
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(all.back()), &set);
    if (::sched_setaffinity(0, sizeof set, &set) == 0) bound = allowed_cores();
  })
      .join();
  EXPECT_EQ(bound, std::vector<int>{all.back()});
  EXPECT_EQ(allowed_cores(), all);
}

TEST(HostCores, OfAListOfLinux) {
  using Cores = std::vector<int>;
  EXPECT_EQ(cores_in_list("0-2,8"), (Cores{0, 1, 2, 8}));
  EXPECT_EQ(cores_in_list("7"), Cores{7});
  for (const char* none : {"", "a", "3-", "-3", "0-100000000", "1,,2"}) {
    EXPECT_EQ(cores_in_list(none), Cores{}) << none;
  }
  EXPECT_EQ(cores_near("ffff:ff:1f.7"), Cores{});  // no such device
}

}  // namespace
}  // namespace trireme

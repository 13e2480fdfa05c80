// What a node is called: by SLURM, where that tells.
#include "base/host_name.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace trireme {
namespace {

TEST(HostName, OfTheNodeIsSlurms) {
  EXPECT_FALSE(host_name().empty());
  ::setenv("SLURMD_NODENAME", "node7", 1);
  EXPECT_EQ(node_name(), "node7");
  ::setenv("SLURMD_NODENAME", "", 1);
  EXPECT_EQ(node_name(), host_name());
  ::unsetenv("SLURMD_NODENAME");
  EXPECT_EQ(node_name(), host_name());
}

}  // namespace
}  // namespace trireme

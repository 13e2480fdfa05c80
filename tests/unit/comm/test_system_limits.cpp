// What is said of limits that MPI cannot begin under.
#include "comm/system_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1024 * 1024;

TEST(SystemLimits, OfThisProcessAreNoProblem) {
  EXPECT_EQ(limit_problem(find_system_limits(1)), "");
  EXPECT_EQ(limit_problem({}), "");
}

TEST(SystemLimits, CountTheThreadsThatAreAskedFor) {
  EXPECT_EQ(find_system_limits(7).threads, 7);
  EXPECT_GE(find_system_limits(0).threads, 1);
}

TEST(SystemLimits, GrowWithThreadsAndRanks) {
  SystemLimits limits{.address_space = 800 * kMiB, .threads = 4};
  EXPECT_EQ(limit_problem(limits), "");
  limits.threads = 16;
  EXPECT_THAT(
      limit_problem(limits),
      AllOf(HasSubstr("limited to 819200 KiB (ulimit -v)"), HasSubstr("with 16 threads"),
            HasSubstr("1572864 at least"), HasSubstr("OMP_NUM_THREADS")));
  limits = {.shared_size = 16 * kMiB, .shared_free = 16 * kMiB, .shares_files = true};
  EXPECT_EQ(limit_problem(limits), "");
  limits.node_ranks = 4;
  EXPECT_THAT(limit_problem(limits),
              AllOf(HasSubstr("/dev/shm has 16.0 MiB"), HasSubstr("17.0 MiB for 4 ranks"),
                    HasSubstr("--shm-size")));
}

// Ranks of the node that began before this one have taken theirs.
TEST(SystemLimits, CountWhatIsFreeForOneRankAlone) {
  SystemLimits limits{.shared_size = 64 * kMiB,
                      .shared_free = 5 * kMiB,
                      .shares_files = true,
                      .node_ranks = 8};
  EXPECT_EQ(limit_problem(limits), "");
  limits.shared_free = 4 * kMiB;
  EXPECT_THAT(limit_problem(limits), HasSubstr("4.0 MiB of them free"));
}

TEST(SystemLimits, SharedMemoryWithoutALimitHasNoBlocks) {
  SystemLimits limits{.shares_files = true};
  limits.set_shared(0, 0, 4096);
  EXPECT_EQ(limit_problem(limits), "");
  limits.set_shared(4096, 256, 4096);
  EXPECT_THAT(limit_problem(limits),
              HasSubstr("/dev/shm has 16.0 MiB, 1.0 MiB of them free"));
}

TEST(SystemLimits, OfFilesMatterWhereMessagesGoThroughThem) {
  SystemLimits limits{.file_size = 100 * 1024, .shared_size = 0, .shared_free = 0};
  EXPECT_EQ(limit_problem(limits), "");
  limits.shares_files = true;
  EXPECT_THAT(limit_problem(limits),
              AllOf(HasSubstr("limited to 100 KiB (ulimit -f)"), HasSubstr("4352 KiB")));
}

}  // namespace
}  // namespace trireme::comm

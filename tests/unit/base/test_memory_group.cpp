// Limits of control groups, as containers and batch systems set them: files that are made
// up.
#include "base/memory_group.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class MemoryGroups : public ::testing::Test {
 protected:
  void make(const fs::path& group, const std::string& limit, const std::string& used,
            const std::string& cached) {
    const fs::path directory = scratch_ / "cgroup" / group;
    fs::create_directories(directory);
    test::spill(directory / "memory.max", limit + "\n");
    test::spill(directory / "memory.current", used + "\n");
    test::spill(directory / "memory.stat",
                "anon 5\nfile 99\ninactive_file " + cached + "\nslab 3\n");
  }
  std::optional<MemoryGroup> found(std::string_view own) {
    return memory_group((scratch_ / "cgroup").string(), own);
  }
  static void expect(const std::optional<MemoryGroup>& group, std::int64_t limit,
                     std::int64_t left) {
    ASSERT_TRUE(group.has_value());
    EXPECT_EQ(group->limit, limit);
    EXPECT_EQ(group->left, left);
  }
  test::Scratch scratch_;
};

TEST_F(MemoryGroups, OfAContainerIsTheRoot) {
  make("", "1000", "700", "150");
  expect(found("0::/\n"), 1000, 450);
  expect(found(""), 1000, 450);
}

TEST_F(MemoryGroups, WithoutALimitThereIsNone) {
  EXPECT_FALSE(found("0::/job\n").has_value());  // nothing is mounted
  make("job", "max", "700", "0");
  EXPECT_FALSE(found("0::/job\n").has_value());
}

// Of a job whose steps have a limit of their own; the neighbour's does not count.
TEST_F(MemoryGroups, TheLeastOfAllLevelsCounts) {
  make("slurm", "max", "9000", "0");
  make("slurm/job_7", "5000", "4500", "100");
  make("slurm/job_7/step_0", "3000", "1000", "0");
  make("slurm/job_8", "10", "10", "0");
  expect(found("12:cpu:/x\n0::/slurm/job_7/step_0\n"), 3000, 600);
  expect(found("0::/slurm/job_7\n"), 5000, 600);
  EXPECT_FALSE(found("0::/../outside\n").has_value());
}

TEST_F(MemoryGroups, LessThanNothingIsNeverLeft) {
  make("job", "1000", "1200", "0");
  expect(found("0::/job\n"), 1000, 0);
  make("job", "1000", "100", "500");  // counted at another instant
  expect(found("0::/job\n"), 1000, 1000);
}

}  // namespace
}  // namespace trireme

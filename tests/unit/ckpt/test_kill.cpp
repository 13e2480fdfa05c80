// A process killed at any point of a save: the checkpoint published last is whole and
// found, nothing half-written bears a final name, and the next save clears the rest away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "unit/ckpt/in_child.hpp"
#include "unit/ckpt/sample.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

void expect_all_whole(const fs::path& directory, const std::string& when) {
  for (const ckpt::Listed& listed : ckpt::list_checkpoints(directory)) {
    EXPECT_THAT(ckpt::problems_of(listed.path, ckpt::Depth::checksums),
                ::testing::IsEmpty())
        << when;
  }
}

TEST(Kill, AtEveryPhase) {
  if constexpr (!kHostExecution) GTEST_SKIP() << test::kNoForks;
  for (const FaultPhase& struck : ckpt::save_phases()) {
    const std::string& deadly = struck.name;
    const test::Scratch scratch;
    ckpt::SaveOptions options;
    options.retention.keep = 2;
    for (const std::int64_t step : {1, 2})
      test::save_as(2, scratch.path(), step, options);
    const int status = test::in_child([&] {
      options.hook = [&](std::string_view phase) {
        if (phase == deadly) ::_exit(77);
        return Fault::none;
      };
      test::save_as(2, scratch.path(), 3, options);
    });
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 77) << deadly;
    const auto& phases = ckpt::save_phases();
    const auto order = [&](const std::string& name) {
      return std::find_if(phases.begin(), phases.end(),
                          [&](const FaultPhase& phase) { return phase.name == name; }) -
             phases.begin();
    };
    const std::int64_t expected = order(deadly) >= order("ckpt.publish") ? 3 : 2;
    const ckpt::Search search = ckpt::find_newest(scratch.path());
    ASSERT_TRUE(search.found.has_value()) << deadly;
    EXPECT_EQ(ckpt::CheckpointReader(*search.found).state().step, expected) << deadly;
    EXPECT_TRUE(search.skipped.empty()) << deadly;
    expect_all_whole(scratch.path(), deadly);
    EXPECT_NO_THROW(ckpt::CheckpointReader(scratch / "latest")) << deadly;

    test::save_as(1, scratch.path(), 4, {{2}});
    EXPECT_EQ(ckpt::find_newest(scratch.path()).found->filename(), "step_00000004");
    for (const auto& entry : fs::directory_iterator(scratch.path())) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << deadly;
    }
    EXPECT_EQ(ckpt::list_checkpoints(scratch.path()).size(), 2u) << deadly;
  }
}

// SIGKILL at times nobody chose, over and over, in one directory.
TEST(Kill, AtRandomTimes) {
  if constexpr (!kHostExecution) GTEST_SKIP() << test::kNoForks;
  const test::Scratch scratch;
  std::int64_t acknowledged = 0;
  unsigned random = 12345;
  for (int round = 0; round < 25; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::int64_t step = acknowledged + 1;; ++step) {
        test::save_as(2, scratch.path(), step, {{2}});
        if (::write(pipe_ends[1], &step, sizeof step) != sizeof step) ::_exit(3);
      }
    }
    ::close(pipe_ends[1]);
    random = random * 1664525u + 1013904223u;
    std::this_thread::sleep_for(std::chrono::microseconds(random >> 15));  // up to 131 ms
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::int64_t step = 0;
    while (::read(pipe_ends[0], &step, sizeof step) == sizeof step) acknowledged = step;
    ::close(pipe_ends[0]);
    expect_all_whole(scratch.path(), "round " + std::to_string(round));
    if (acknowledged == 0) continue;
    const ckpt::Search search = ckpt::find_newest(scratch.path());
    ASSERT_TRUE(search.found.has_value());
    EXPECT_GE(ckpt::CheckpointReader(*search.found).state().step, acknowledged);
  }
  EXPECT_GT(acknowledged, 0);
}

}  // namespace
}  // namespace trireme

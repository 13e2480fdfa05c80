// log.txt: start after start, what a kill left torn, text that is not plain, and places
// where nothing can be written.
#include "run/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <vector>

#include "unit/io/scratch.hpp"

namespace trireme::run {
namespace {

using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunLogs : public ::testing::Test {
 protected:
  RunLog::Warn warn() {
    return [this](const std::string& problem) { problems_.push_back(problem); };
  }
  std::vector<std::string> problems_;
  test::Scratch scratch_;
};

TEST_F(RunLogs, StartsFollowEachOther) {
  {
    RunLog log(scratch_.path(), "start 1", warn());
    log.write("one\ntwo");
    EXPECT_EQ(slurp(scratch_ / "log.txt"), "=== start 1 ===\none\ntwo\n")
        << "on disk at once";
  }
  {
    RunLog log(scratch_.path(), "start 2", warn());
    log.write("");
    log.write("three");
  }
  EXPECT_EQ(slurp(scratch_ / "log.txt"),
            "=== start 1 ===\none\ntwo\n\n=== start 2 ===\n\nthree\n");
  // A line that a kill has torn stays, and ends.
  spill(scratch_ / "log.txt", "=== start 1 ===\nhal");
  RunLog(scratch_.path(), "start 2", warn()).write("whole");
  EXPECT_EQ(slurp(scratch_ / "log.txt"),
            "=== start 1 ===\nhal\n\n=== start 2 ===\nwhole\n");
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(RunLogs, ArePlainText) {
  RunLog log(scratch_.path(), "start 1", warn());
  log.write("\x1b[36mcoloured\x1b[0m\ta\r\nb\x07 caf\xc3\xa9 \xff");
  EXPECT_THAT(slurp(scratch_ / "log.txt"),
              EndsWith("\ncoloured\ta\nb\xef\xbf\xbd caf\xc3\xa9 \xef\xbf\xbd\n"));
}

TEST_F(RunLogs, WhatCannotBeWrittenIsSaidOnce) {
  test::on_full_disks(1 << 16, [&](const test::FullDisk& disk) {
    problems_.clear();
    RunLog log(disk.path(), "start 1", warn());
    disk.fill();
    const std::string line(1 << 16, 'x');
    for (int i = 0; i < 3; ++i) log.write(line);
    ASSERT_EQ(problems_.size(), 1u);
    EXPECT_THAT(problems_[0],
                AllOf(HasSubstr("cannot write"), HasSubstr("log.txt"),
                      HasSubstr(disk.cause()), HasSubstr("training goes on")));
    // Once there is space again, lines are whole.
    disk.relieve();
    log.write("whole");
    EXPECT_THAT(slurp(disk / "log.txt"), EndsWith("\nwhole\n"));
    EXPECT_EQ(problems_.size(), 1u);
  });
}

TEST_F(RunLogs, OtherThingsOfThisName) {
  std::filesystem::create_directory(scratch_ / "log.txt");
  RunLog(scratch_.path(), "start 1", warn()).write("one");
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_THAT(problems_[0], HasSubstr("Is a directory"));
  // A pipe that nobody reads is not waited for.
  std::filesystem::remove(scratch_ / "log.txt");
  ASSERT_EQ(::mkfifo((scratch_ / "log.txt").c_str(), 0600), 0);
  RunLog(scratch_.path(), "start 1", warn()).write("one");
  ASSERT_EQ(problems_.size(), 2u);
  EXPECT_THAT(problems_[1], HasSubstr("is no regular file"));
}

TEST_F(RunLogs, LinksAreNotFollowed) {
  spill(scratch_ / "mine", "kept\n");
  std::filesystem::create_symlink("mine", scratch_ / "log.txt");
  RunLog log(scratch_.path(), "start 1", warn());
  log.write("one");
  EXPECT_EQ(slurp(scratch_ / "mine"), "kept\n");
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_THAT(problems_[0],
              AllOf(HasSubstr("log.txt' is a link"), HasSubstr("training goes on")));
}

// The warning itself is recorded, too.
TEST_F(RunLogs, TheWarningMayWrite) {
  std::filesystem::create_directory(scratch_ / "log.txt");
  int count = 0;
  RunLog* written = nullptr;
  RunLog log(scratch_.path(), "start 1", [&](const std::string& problem) {
    ++count;
    if (written != nullptr) written->write(problem);
  });
  written = &log;
  log.write("one");
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace trireme::run

// A directory held by one process at a time: what is made and removed again, who is kept
// out, and how its loss is noticed.
#include "io/held_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "unit/io/scratch.hpp"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::slurp;
using test::spill;
using ::testing::AllOf;
using ::testing::HasSubstr;

const HeldDirectory::Words kWords = {"run directory", "trains in",
                                     "train elsewhere: --run-dir DIR"};

class HeldDirectoryTest : public ::testing::Test {
 protected:
  std::string refusal(const fs::path& path) {
    return message_of<InputError>([&] { HeldDirectory(path, kWords); });
  }
  test::Scratch scratch_;
};

TEST_F(HeldDirectoryTest, WhatIsMadeGoesUnlessKept) {
  const fs::path path = scratch_ / "a/b//c/";
  { const HeldDirectory held(path, kWords); }
  EXPECT_FALSE(fs::exists(scratch_ / "a"));
  {
    HeldDirectory held(path, kWords);
    held.keep();
  }
  EXPECT_TRUE(fs::exists(path / ".lock"));
  { const HeldDirectory held(path, kWords); }
  EXPECT_TRUE(fs::exists(path / ".lock")) << "another one's";
  // What was there stays, and a file that was put there with all above it.
  { const HeldDirectory held(scratch_ / "a/d/e", kWords); }
  EXPECT_TRUE(fs::exists(scratch_ / "a"));
  EXPECT_FALSE(fs::exists(scratch_ / "a/d"));
  {
    const HeldDirectory held(scratch_ / "a/d/e", kWords);
    spill(scratch_ / "a/d/e/note", "");
  }
  EXPECT_TRUE(fs::exists(scratch_ / "a/d/e/note"));
  EXPECT_FALSE(fs::exists(scratch_ / "a/d/e/.lock"));
}

TEST_F(HeldDirectoryTest, OneAtATime) {
  const fs::path path = scratch_ / "run";
  HeldDirectory first(path, kWords);
  EXPECT_THAT(refusal(path),
              AllOf(HasSubstr("another process trains in '" + path.string() + "'"),
                    HasSubstr("process " + std::to_string(::getpid()) + " on "),
                    HasSubstr("--run-dir DIR")));
  EXPECT_EQ(first.loss(), "") << "who was refused has taken nothing away";
}

// A full disk takes no text of who holds it: that is for messages only.
TEST_F(HeldDirectoryTest, AFullDiskCanBeHeld) {
  const fs::path path = scratch_ / "run";
  {
    HeldDirectory before(path, kWords);
    before.keep();
  }
  const test::FileSizeLimit limit(0);
  HeldDirectory held(path, kWords);
  EXPECT_EQ(held.loss(), "");
  EXPECT_THAT(refusal(path), AllOf(HasSubstr("another process trains in"),
                                   HasSubstr("(an unknown one)")));
}

// Links that somebody has planted are not written through.
TEST_F(HeldDirectoryTest, ALockIsARegularFile) {
  const fs::path path = scratch_ / "run", victim = scratch_ / "victim";
  fs::create_directory(path);
  spill(victim, "precious");
  fs::create_symlink(victim, path / ".lock");
  EXPECT_THAT(refusal(path), AllOf(HasSubstr(".lock'"), HasSubstr("symbolic link"),
                                   HasSubstr("Remove it")));
  EXPECT_EQ(slurp(victim), "precious");
  fs::remove(path / ".lock");
  ASSERT_EQ(::mkfifo((path / ".lock").c_str(), 0666), 0);
  EXPECT_THAT(refusal(path), HasSubstr("not a regular file"));
}

TEST_F(HeldDirectoryTest, PlacesThatAreNone) {
  spill(scratch_ / "file", "");
  EXPECT_THAT(refusal(scratch_ / "file"),
              AllOf(HasSubstr("exists and is a file"), HasSubstr("--run-dir DIR")));
  EXPECT_THAT(refusal(scratch_ / "file/run"), HasSubstr("Not a directory"));
  fs::create_symlink("nowhere", scratch_ / "link");
  EXPECT_THAT(refusal(scratch_ / "link"),
              AllOf(HasSubstr("is a link to 'nowhere'"), HasSubstr("is not there")));
  EXPECT_FALSE(fs::exists(scratch_ / "nowhere"));
  EXPECT_THAT(refusal("/proc"), HasSubstr("cannot write '/proc/.lock'"));
}

TEST_F(HeldDirectoryTest, ItsLossIsNoticed) {
  const fs::path path = scratch_ / "run", moved = scratch_ / "moved";
  HeldDirectory held(path, kWords);
  held.keep();
  fs::rename(path, moved);
  EXPECT_EQ(held.loss(), "'" + path.string() + "' was moved to '" + moved.string() + "'");
  fs::create_directory(path);
  EXPECT_THAT(held.loss(), HasSubstr("and another directory has its name"));
  fs::remove(path);
  fs::rename(moved, path);
  EXPECT_EQ(held.loss(), "");
  fs::rename(path / ".lock", scratch_ / "lock");
  EXPECT_EQ(held.loss(), "'" + (path / ".lock").string() + "' was removed");
  spill(path / ".lock", "");
  EXPECT_EQ(held.loss(), "'" + (path / ".lock").string() + "' was replaced");
  fs::remove_all(path);
  EXPECT_EQ(held.loss(), "'" + path.string() + "' was removed");
}

}  // namespace
}  // namespace trireme::io

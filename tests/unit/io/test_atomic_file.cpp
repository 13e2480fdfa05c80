// Atomic files: the final name shows the old content or the new, never a part; nothing is
// left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/atomic_file.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(AtomicFile, OldUntilCommitted) {
  const test::Scratch scratch;
  test::spill(scratch / "f", "old");
  {
    io::AtomicFile file(scratch / "f");
    file.write("ne");
    file.write("w");
    EXPECT_EQ(test::slurp(scratch / "f"), "old");
    file.commit();
  }
  EXPECT_EQ(test::slurp(scratch / "f"), "new");
  EXPECT_EQ(entries(scratch.path()), 1u);
}

TEST(AtomicFile, RemovedWithoutCommit) {
  const test::Scratch scratch;
  {
    io::AtomicFile file(scratch / "f");
    file.write("half");
    EXPECT_TRUE(fs::exists(file.temporary()));
  }
  EXPECT_EQ(entries(scratch.path()), 0u);
}

TEST(AtomicFile, WrittenByName) {
  const test::Scratch scratch;
  io::AtomicFile file(scratch / "f");
  test::spill(file.temporary(), "by another writer");
  file.commit();
  EXPECT_EQ(test::slurp(scratch / "f"), "by another writer");
}

TEST(AtomicFile, RefusesDirectory) {
  const test::Scratch scratch;
  EXPECT_THAT(test::message_of<Error>([&] { io::AtomicFile file(scratch.path()); }),
              ::testing::HasSubstr("it is a directory"));
}

TEST(AtomicFile, SymlinkSwap) {
  const test::Scratch scratch;
  io::create_directories(scratch / "a");
  io::create_directories(scratch / "b");
  io::swap_symlink("a", scratch / "latest");
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "a");
  io::swap_symlink("b", scratch / "latest");
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "b");
  EXPECT_EQ(entries(scratch.path()), 3u);
  // A leftover of a killed run under the same temporary name is no obstacle.
  fs::create_symlink("gone", io::temporary_name(scratch / "latest"));
  io::swap_symlink("a", scratch / "latest");
  EXPECT_EQ(fs::read_symlink(scratch / "latest"), "a");
}

TEST(AtomicFile, RenameErrorNamesBoth) {
  const test::Scratch scratch;
  EXPECT_THAT(
      test::message_of<Error>(
          [&] { io::rename_synced(scratch / "from", scratch / "to"); }),
      ::testing::AllOf(::testing::HasSubstr("/from'"), ::testing::HasSubstr("/to'")));
}

}  // namespace
}  // namespace trireme

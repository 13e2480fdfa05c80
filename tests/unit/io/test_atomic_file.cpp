// Atomic files: the final name shows the old content or the new, never a part; nothing is
// left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host_name.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

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
}

// What a killed process left goes; what may be another's work is named.
TEST(AtomicFile, LeftoversOfAnOutput) {
  const test::Scratch scratch;
  const fs::path out = scratch / "out.h5";
  const auto leftover = [&](const std::string& rest) {
    return scratch / (".out.h5.tmp-" + rest);
  };
  const std::string host = host_name(), alive = std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string dead = std::to_string(child);
  const fs::path gone[] = {leftover(host + "-" + dead + "-0123456789abcdef"),
                           leftover(host + "-" + dead + "-0123456789abcdef.tokens"),
                           leftover(host + "-" + dead),  // of an earlier version
                           leftover(host + "-" + dead + "-ffffffffffffffff")};
  for (const fs::path& path : {gone[0], gone[1], gone[2]}) test::spill(path, "12345");
  fs::create_directory(gone[3]);
  test::spill(gone[3] / "model.safetensors", "1234567");
  const fs::path named[] = {leftover(host + "-" + alive + "-0123456789abcdef"),
                            leftover("far-" + dead + "-0123456789abcdef")};
  const fs::path others[] = {scratch / "out.h5", scratch / ".out.h5.tmp-x",
                             scratch / (".other.tmp-" + host + "-" + dead)};
  for (const fs::path& path : named) test::spill(path, "");
  for (const fs::path& path : others) test::spill(path, "");

  const std::vector<std::string> lines = io::remove_leftovers_of(out);
  for (const fs::path& path : gone) EXPECT_FALSE(fs::exists(path)) << path;
  for (const fs::path& path : named) EXPECT_TRUE(fs::exists(path)) << path;
  for (const fs::path& path : others) EXPECT_TRUE(fs::exists(path)) << path;
  EXPECT_THAT(lines, ::testing::SizeIs(6));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr("removed '" + gone[3].string()),
                                    HasSubstr("7 bytes"), HasSubstr("killed"))));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(named[1].string()), HasSubstr("on far"),
                                    HasSubstr("remove it if nobody is"))));
  EXPECT_THAT(io::remove_leftovers_of(out), ::testing::SizeIs(2));
  EXPECT_THAT(io::remove_leftovers_of("none/out"), ::testing::IsEmpty());
}

// A file of the name is another's, a link leads to one.
TEST(AtomicFile, NewFilesFollowNoLinks) {
  const test::Scratch scratch;
  test::spill(scratch / "victim", "precious");
  fs::create_symlink("victim", scratch / "link");
  fs::create_symlink("nowhere", scratch / "dangling");
  for (const char* name : {"victim", "link", "dangling"}) {
    EXPECT_THAT(test::message_of<Error>([&] {
                  io::FileWriter(scratch / name, io::FileWriter::Mode::create);
                }),
                AllOf(HasSubstr("cannot create"), HasSubstr("File exists")));
    EXPECT_NE(test::message_of<Error>([&] { io::H5File::create(scratch / name); }), "");
  }
  EXPECT_EQ(test::slurp(scratch / "victim"), "precious");
  EXPECT_FALSE(fs::exists(scratch / "nowhere"));
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

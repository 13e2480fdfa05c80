// Plain files: round trips and the wording of every error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "io/files.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Files, RoundTrip) {
  const test::Scratch scratch;
  const std::string content("a\0b\nc", 5);
  io::write_file(scratch / "f", content);
  EXPECT_EQ(io::read_file(scratch / "f"), content);
  EXPECT_EQ(io::file_size(scratch / "f"), 5u);
  io::write_file(scratch / "f", "");
  EXPECT_EQ(io::read_file(scratch / "f"), "");
}

TEST(Files, ReadingSaysWhatIsWrong) {
  const test::Scratch scratch;
  EXPECT_THAT(
      message_of<InputError>([&] { io::read_file(scratch / "no/deck.yaml", "deck"); }),
      AllOf(HasSubstr("deck '"), HasSubstr("no/deck.yaml' does not exist")));
  EXPECT_THAT(message_of<InputError>([&] { io::read_file(scratch.path(), "deck"); }),
              AllOf(HasSubstr("is a directory"), HasSubstr("expected a deck")));
  test::spill(scratch / "f", "12345678");
  EXPECT_THAT(message_of<InputError>([&] { io::read_file(scratch / "f" / "below"); }),
              HasSubstr("does not exist"));
  EXPECT_THAT(message_of<InputError>([&] { io::read_file("/dev/null"); }),
              HasSubstr("is not a regular file"));
  const io::FileReader reader(scratch / "f");
  char buffer[8];
  reader.read_at(4, buffer, 4);
  EXPECT_EQ(std::string(buffer, 4), "5678");
  EXPECT_THAT(message_of<InputError>([&] { reader.read_at(4, buffer, 8); }),
              AllOf(HasSubstr("truncated"), HasSubstr("expected 8 bytes at offset 4"),
                    HasSubstr("ends at 8")));
}

// What may pass is tried again, and is nothing that the file's owner could mend.
TEST(Files, AFailingSystemIsNoDamage) {
  // The first page of a process' memory: the system's own EIO, from a regular file.
  const io::FileReader memory("/proc/self/mem");
  char byte = 0;
  const std::string message =
      message_of<io::ReadError>([&] { memory.read_at(0, &byte, 1); });
  EXPECT_THAT(message,
              AllOf(HasSubstr("cannot read '/proc/self/mem': Input/output error"),
                    HasSubstr("says nothing about what the file holds")));

  const test::Scratch scratch;
  test::spill(scratch / "f", "12345678");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  std::thread passes([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ::setrlimit(RLIMIT_NOFILE, &before);
  });
  EXPECT_EQ(io::file_size(scratch / "f"), 8u);  // once there are descriptors again
  passes.join();
}

TEST(Files, UnreadableIsSaid) {
  const test::Scratch scratch;
  test::spill(scratch / "f", "x");
  std::filesystem::permissions(scratch / "f", std::filesystem::perms::none);
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);  // root reads everything
  }
  const std::string message =
      message_of<InputError>([&] { io::read_file(scratch / "f"); });
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_THAT(message,
              AllOf(HasSubstr("Permission denied"), HasSubstr("check its permissions")));
}

TEST(Files, Directories) {
  const test::Scratch scratch;
  io::create_directories(scratch / "a/b/c");
  io::create_directories(scratch / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/c"));
  test::spill(scratch / "f", "");
  EXPECT_THROW(io::create_directories(scratch / "f"), Error);
  EXPECT_THAT(message_of<Error>([&] { io::create_directories(scratch / "f/g"); }),
              HasSubstr("cannot create the directory"));
  EXPECT_THAT(message_of<Error>([&] { io::write_file(scratch / "none/f", "x"); }),
              HasSubstr("No such file or directory"));
}

TEST(Files, WriteAt) {
  const test::Scratch scratch;
  {
    io::FileWriter writer(scratch / "f", io::FileWriter::Mode::create);
    writer.write_at(4, "5678", 4);
    writer.write_at(0, "1234", 4);
    writer.sync();
    writer.close();
  }
  io::FileWriter again(scratch / "f", io::FileWriter::Mode::existing);
  again.write_at(2, "xx", 2);
  again.close();
  EXPECT_EQ(test::slurp(scratch / "f"), "12xx5678");
  EXPECT_THROW(io::FileWriter(scratch / "g", io::FileWriter::Mode::existing), Error);
}

TEST(Files, FullDisk) {
  const std::string big(2 << 20, 'x');
  test::on_full_disks(1 << 20, [&](const test::FullDisk& disk) {
    EXPECT_THAT(message_of<Error>([&] { io::write_file(disk / "f", big); }),
                AllOf(HasSubstr((disk / "f").filename().string()),
                      HasSubstr(disk.cause()), HasSubstr(disk.advice())));
    EXPECT_TRUE(std::filesystem::is_empty(disk.path()));
    io::write_file(disk / "f", "fits");
    EXPECT_EQ(test::slurp(disk / "f"), "fits");
    io::FileWriter writer(disk / "g", io::FileWriter::Mode::create);
    if (disk.is_file_system()) {  // limits do not concern what is claimed
      EXPECT_LE(io::free_bytes(disk / "not/yet/there"), 1u << 20);
      EXPECT_THAT(message_of<Error>([&] { writer.reserve(big.size()); }),
                  HasSubstr("2.0 MiB needed"));
      EXPECT_EQ(std::filesystem::file_size(disk / "g"), 0u);
    }
    EXPECT_THAT(message_of<Error>([&] { writer.write_at(0, big.data(), big.size()); }),
                HasSubstr(disk.cause()));
  });
}

}  // namespace
}  // namespace trireme

// Mapped files: content, and the checks before anything is handed out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/mapped_file.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MappedFile, ShowsContent) {
  const test::Scratch scratch;
  test::spill(scratch / "f", std::string("\1\0\2\0\3\0\4", 7));
  const io::MappedFile map(scratch / "f");
  ASSERT_EQ(map.size(), 7u);
  const auto* words = map.array<std::uint16_t>(2, 2, "words");
  EXPECT_EQ(words[0], 2);
  EXPECT_EQ(words[1], 3);
}

TEST(MappedFile, ChecksRangeAndAlignment) {
  const test::Scratch scratch;
  test::spill(scratch / "f", "12345678");
  const io::MappedFile map(scratch / "f");
  EXPECT_NO_THROW(map.range(8, 0, "nothing"));
  EXPECT_THAT(message_of<InputError>([&] { map.range(4, 5, "/tokens"); }),
              AllOf(HasSubstr("truncated"),
                    HasSubstr("/tokens takes 5 bytes from byte 4"), HasSubstr("has 8")));
  EXPECT_THROW(map.range(9, 0, "x"), InputError);
  EXPECT_THROW(map.range(1, ~std::uint64_t{0}, "x"), InputError);
  EXPECT_THROW(map.array<std::uint32_t>(0, std::uint64_t{1} << 63, "x"), InputError);
  EXPECT_THAT(message_of<InputError>([&] { map.array<std::uint32_t>(1, 1, "/tokens"); }),
              HasSubstr("no multiple of 4"));
}

TEST(MappedFile, EmptyMissingDirectoryAndMove) {
  const test::Scratch scratch;
  test::spill(scratch / "empty", "");
  EXPECT_EQ(io::MappedFile(scratch / "empty").size(), 0u);
  EXPECT_THROW(io::MappedFile(scratch / "none"), InputError);
  EXPECT_THROW(io::MappedFile{scratch.path()}, InputError);
  test::spill(scratch / "f", "abc");
  io::MappedFile a(scratch / "f");
  io::MappedFile b(std::move(a));
  a = std::move(b);
  EXPECT_EQ(static_cast<char>(a.data()[2]), 'c');
}

TEST(MappedFile, CutUnderItsReaders) {
  const test::Scratch scratch;
  test::spill(scratch / "f", std::string(10000, 'x'));
  io::MappedFile first(scratch / "f");
  const io::MappedFile map(std::move(first));
  EXPECT_NO_THROW(map.require_uncut());
  std::filesystem::resize_file(scratch / "f", 100);
  EXPECT_EQ(static_cast<char>(map.data()[0]), 'x');
  EXPECT_NO_THROW(map.require_uncut());
  EXPECT_EQ(static_cast<char>(map.data()[9999]), '\0');
  EXPECT_THAT(message_of<InputError>([&] { map.require_uncut(); }),
              HasSubstr("f' was cut short while it was read"));
}

}  // namespace
}  // namespace trireme

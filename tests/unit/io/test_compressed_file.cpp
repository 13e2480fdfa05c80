// gzip and zstd files give their text back, in whatever pieces it is asked for; damage of
// every kind is found, and told with the byte.
#include "io/compressed_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/machine.hpp"
#include "base/plural.hpp"
#include "support/compress.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

using io::Compression;
using test::message_of;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string packed_as(Compression compression, std::string_view text) {
  return compression == Compression::gzip ? test::gzip_of(text) : test::zstd_of(text);
}

// Words that compress, by about three.
std::string some_text(std::size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += std::to_string(random() % 100000) + " and\n";
  text.resize(bytes);
  return text;
}

class CompressedFile : public ::testing::TestWithParam<Compression> {
 protected:
  std::string packed(std::string_view text) const { return packed_as(GetParam(), text); }
  std::filesystem::path file() const { return scratch_ / "packed"; }

  // The text of a file with these bytes, read by so many.
  std::string unpacked(const std::string& bytes, std::size_t step = 1 << 16) const {
    test::spill(file(), bytes);
    io::CompressedFile compressed(file(), GetParam());
    std::string text;
    std::string piece(step, '\0');
    std::size_t got = step;
    while (got == step) {
      got = compressed.read(piece.data(), step);
      text.append(piece, 0, got);
    }
    EXPECT_EQ(compressed.position(), bytes.size());
    EXPECT_EQ(compressed.size(), bytes.size());
    EXPECT_EQ(compressed.read(piece.data(), step), 0u);
    return text;
  }
  std::string error_of(const std::string& bytes) const {
    return message_of<InputError>([&] { unpacked(bytes); });
  }
  const test::Scratch scratch_;
};

TEST_P(CompressedFile, GivesItsText) {
  EXPECT_EQ(unpacked(packed("")), "");
  const std::string text = some_text(3000000);
  const std::string bytes = packed(text);
  for (const std::size_t step : {std::size_t{1000}, std::size_t{1} << 20, text.size()}) {
    EXPECT_TRUE(unpacked(bytes, step) == text) << step;
  }
  EXPECT_TRUE(unpacked(packed(text.substr(0, 3000)), 1) == text.substr(0, 3000));
  // Much more text than file: a member ends with the file's last buffer.
  const std::string zeros(5000000, '0');
  EXPECT_TRUE(unpacked(packed(zeros)) == zeros);
}

TEST_P(CompressedFile, SeveralMembersAreOneText) {
  const std::string text = some_text(700000);
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 9973) {
    bytes += packed(text.substr(at, 9973)) + packed("");
  }
  EXPECT_TRUE(unpacked(bytes) == text);
  EXPECT_TRUE(unpacked(bytes, 9973) == text);
}

TEST_P(CompressedFile, CutShort) {
  const std::string text = some_text(400000);
  const std::string bytes = packed(text);
  for (const std::size_t size :
       {std::size_t{5}, bytes.size() / 3, bytes.size() - 5, bytes.size() - 1}) {
    EXPECT_THAT(error_of(bytes.substr(0, size)),
                AllOf(HasSubstr(fmt::format("packed' at byte {0} of {0}, in the ",
                                            format_grouped(static_cast<long>(size)))),
                      HasSubstr("that begins at byte 0: the file ends inside it: it was "
                                "cut short. Get the whole file anew")));
  }
  // In a later member.
  EXPECT_THAT(error_of(bytes + bytes.substr(0, 100)),
              HasSubstr("that begins at byte " +
                        format_grouped(static_cast<long>(bytes.size())) + ": the file"));
  EXPECT_THAT(error_of(""), HasSubstr("does not begin as a"));
}

TEST_P(CompressedFile, TrailingGarbage) {
  const std::string bytes = packed(some_text(1000));
  const std::string end = format_grouped(static_cast<long>(bytes.size()));
  EXPECT_THAT(error_of(bytes + "x"),
              AllOf(HasSubstr("has trailing garbage: 1 byte of no "),
                    HasSubstr("from byte " + end + " on"),
                    HasSubstr(fmt::format("head -c {}", bytes.size()))));
  EXPECT_THAT(error_of(bytes + std::string(512, '\0')), HasSubstr("512 bytes of no "));
  EXPECT_THAT(error_of("no such file at all"), HasSubstr("does not begin as a"));
}

// Whatever byte is changed, nothing else than the text or an error comes of it.
TEST_P(CompressedFile, CorruptBytes) {
  const std::string text = some_text(600000);
  const std::string bytes = packed(text);
  std::mt19937 random(3);
  int found = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] ^= static_cast<char>(1 + random() % 255);
    test::spill(file(), damaged);
    std::string got;
    const std::string error = message_of<InputError>([&] { got = unpacked(damaged); });
    if (error == "(nothing thrown)") {
      EXPECT_TRUE(got == text) << trial;  // a byte that says nothing: a time, a system
    } else {
      ++found;
      EXPECT_THAT(error, AnyOf(HasSubstr("cannot unpack '"), HasSubstr("garbage"),
                               HasSubstr("does not begin as a")));
    }
  }
  EXPECT_GT(found, 50);
  // The checksum, which is last.
  std::string damaged = bytes;
  damaged[damaged.size() - (GetParam() == Compression::gzip ? 8 : 4)] ^= 1;
  EXPECT_THAT(error_of(damaged), AnyOf(HasSubstr("incorrect data check. Get the whole"),
                                       HasSubstr("doesn't match checksum. Get the")));
}

// Where damage was found: near it, as blocks have 128 KiB of text at most.
TEST_P(CompressedFile, TellsTheByte) {
  const std::string text = some_text(2000000);
  std::string bytes = packed(text);
  const std::size_t at = bytes.size() / 2;
  for (std::size_t i = 0; i < 64; ++i) bytes[at + i] = static_cast<char>(0xFF);
  test::spill(file(), bytes);
  io::CompressedFile compressed(file(), GetParam());
  std::string into(text.size(), '\0');
  const std::string error =
      message_of<InputError>([&] { compressed.read(into.data(), into.size()); });
  const std::string place = fmt::format(
      "at byte {} of {}", format_grouped(static_cast<long>(compressed.position())),
      format_grouped(static_cast<long>(bytes.size())));
  EXPECT_THAT(error, HasSubstr(place));
  EXPECT_NEAR(static_cast<double>(compressed.position()), static_cast<double>(at), 70000);
}

TEST_P(CompressedFile, TakesBoundedMemory) {
  const std::string bytes = packed(std::string(64 << 20, 'x'));
  EXPECT_LT(bytes.size(), 100000u);
  test::spill(file(), bytes);
  io::CompressedFile compressed(file(), GetParam());
  std::string piece(1 << 16, '\0');
  std::size_t got = piece.size(), total = 0;
  const std::int64_t before = peak_process_bytes();
  while (got == piece.size()) total += got = compressed.read(piece.data(), piece.size());
  EXPECT_EQ(total, std::size_t{64} << 20);
  EXPECT_LT(peak_process_bytes() - before, std::int64_t{16} << 20);
}

INSTANTIATE_TEST_SUITE_P(CompressedFile, CompressedFile,
                         ::testing::Values(Compression::gzip, Compression::zstd),
                         [](const auto& info) {
                           return std::string(io::name_of(info.param));
                         });

TEST(CompressedFileFormats, IsToldByTheFirstBytes) {
  EXPECT_EQ(io::compression_of(test::gzip_of("a")), Compression::gzip);
  EXPECT_EQ(io::compression_of(test::zstd_of("a")), Compression::zstd);
  EXPECT_EQ(io::compression_of(std::string_view("\x53\x2A\x4D\x18", 4)),
            Compression::zstd);
  for (const char* text : {"", "\x1F", "text", "\x28\xB5\x2F", "S*M\x17", "PK\3\4"}) {
    EXPECT_EQ(io::compression_of(text), Compression::none) << text;
  }
  EXPECT_EQ(io::promised_compression("a/b.jsonl.gz"), Compression::gzip);
  EXPECT_EQ(io::promised_compression("b.zst"), Compression::zstd);
  EXPECT_EQ(io::promised_compression("b.zstd"), Compression::zstd);
  EXPECT_EQ(io::promised_compression("b.gz/a.jsonl"), Compression::none);
}

TEST(CompressedFileFormats, ZstdFramesThatAreSkipped) {
  const test::Scratch scratch;
  const std::string skipped = std::string("\x50\x2A\x4D\x18\x05\0\0\0", 8) + "12345";
  test::spill(scratch / "f",
              skipped + test::zstd_of("one ") + skipped + test::zstd_of("two") + skipped);
  io::CompressedFile file(scratch / "f", Compression::zstd);
  std::string text(100, '\0');
  text.resize(file.read(text.data(), text.size()));
  EXPECT_EQ(text, "one two");
}

TEST(CompressedFileFormats, ZstdWindowsHaveABound) {
  const test::Scratch scratch;
  std::string text(10, '\0');
  // A frame of four bytes as they are, whose window has the logarithm 10 + exponent / 8.
  const auto frame = [](char exponent) {
    return std::string("\x28\xB5\x2F\xFD\0", 5) + exponent +
           std::string("\x21\0\0text", 7);
  };
  test::spill(scratch / "f", frame('\x88'));
  io::CompressedFile most(scratch / "f", Compression::zstd);
  EXPECT_EQ(most.read(text.data(), text.size()), 4u);
  test::spill(scratch / "f", frame('\x90'));
  io::CompressedFile file(scratch / "f", Compression::zstd);
  EXPECT_THAT(message_of<InputError>([&] { file.read(text.data(), text.size()); }),
              HasSubstr("window of 128 MiB at most (--long=27)"));
}

}  // namespace
}  // namespace trireme

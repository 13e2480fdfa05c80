// Checksums: published values, independence of how a stream is cut, sensitivity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "io/checksum.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

TEST(Checksum, IsXxh3) {
  // XXH3_64bits of the empty input and of "a" with seed 0, from the xxhash
  // specification's reference implementation.
  EXPECT_EQ(io::to_hex(io::checksum("", 0)), "2d06800538d394c2");
  EXPECT_EQ(io::to_hex(io::checksum("a", 1)), "e6c632b61e964e1f");
}

TEST(Checksum, StreamEqualsWhole) {
  std::vector<unsigned char> data(100003);
  unsigned state = 1;
  for (auto& byte : data)
    byte = static_cast<unsigned char>((state = state * 1664525u + 1013904223u) >> 24);
  const std::uint64_t whole = io::checksum(data.data(), data.size());
  for (const std::size_t step : {1u, 31u, 33u, 257u, 1024u, 65536u}) {
    io::Checksum sum;
    for (std::size_t at = 0; at < data.size(); at += step) {
      sum.update(data.data() + at, std::min(step, data.size() - at));
    }
    EXPECT_EQ(sum.value(), whole) << step;
  }
}

TEST(Checksum, EveryBitMatters) {
  std::vector<unsigned char> data(257, 7);
  const std::uint64_t whole = io::checksum(data.data(), data.size());
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_NE(io::checksum(data.data(), data.size()), whole) << bit;
    data[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
  }
}

TEST(Checksum, OfFile) {
  const test::Scratch scratch;
  const std::string content(9 << 20, 'x');  // more than one buffer
  test::spill(scratch / "f", content);
  const io::FileSum sum = io::checksum_file(scratch / "f");
  EXPECT_EQ(sum.bytes, content.size());
  EXPECT_EQ(sum.checksum, io::checksum(content.data(), content.size()));
  test::spill(scratch / "empty", "");
  EXPECT_EQ(io::checksum_file(scratch / "empty").checksum, io::checksum("", 0));
  EXPECT_THAT(test::message_of<InputError>([&] { io::checksum_file(scratch / "none"); }),
              ::testing::HasSubstr("does not exist"));
}

TEST(Checksum, Hexadecimal) {
  EXPECT_EQ(io::from_hex("00000000000000ff"), 255u);
  EXPECT_EQ(io::from_hex(io::to_hex(0x0123456789abcdefull)), 0x0123456789abcdefull);
  for (const char* bad :
       {"", "ff", "00000000000000fg", "0x000000000000ff", "-0000000000000ff"}) {
    EXPECT_THROW(io::from_hex(bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace trireme

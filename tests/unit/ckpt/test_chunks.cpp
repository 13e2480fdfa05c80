// Checksums of chunks, and of what is in no block.
#include <gtest/gtest.h>

#include "ckpt/chunks.hpp"
#include "unit/io/scratch.hpp"

namespace trireme {
namespace {

std::vector<std::byte> bytes_of(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 3);
  return bytes;
}

// 1.5 chunks of whole rows, handed over in pieces of any size.
TEST(Chunks, AreWholeRowsHoweverTheyCome) {
  const index_t columns = 1000;
  const index_t full = static_cast<index_t>(ckpt::kChunkBytes) / (4 * columns);
  const ckpt::Rectangle place{7, 3, full + full / 2, columns};
  EXPECT_EQ(ckpt::chunk_rows(place, DType::float32), full);
  ASSERT_EQ(ckpt::chunk_count(place, DType::float32), 2u);
  const auto bytes = bytes_of(static_cast<std::size_t>(place.elements()) * 4);
  const std::size_t first = static_cast<std::size_t>(full * columns) * 4;
  const std::vector<std::uint64_t> expected = {
      io::checksum(bytes.data(), first),
      io::checksum(bytes.data() + first, bytes.size() - first)};
  for (const std::size_t piece :
       {bytes.size(), std::size_t{1} << 20, std::size_t{99991}}) {
    ckpt::ChunkSums sums(place, DType::float32);
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      sums.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    }
    EXPECT_EQ(sums.finish(), expected) << piece;
  }
}

// A row longer than a chunk is one.
TEST(Chunks, AreOneRowAtLeast) {
  const ckpt::Rectangle place{0, 0, 3, static_cast<index_t>(ckpt::kChunkBytes)};
  EXPECT_EQ(ckpt::chunk_rows(place, DType::float32), 1);
  EXPECT_EQ(ckpt::chunk_count(place, DType::float32), 3u);
}

TEST(Chunks, ChecksumOutsideBlocks) {
  const test::Scratch scratch;
  const auto bytes = bytes_of(1 << 20);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  test::spill(scratch / "file", text);
  const io::FileReader file(scratch / "file");
  EXPECT_EQ(ckpt::checksum_outside(file, {}), io::checksum(text.data(), text.size()));
  const std::string rest =
      text.substr(0, 100) + text.substr(400000, 5) + text.substr(900000);
  EXPECT_EQ(ckpt::checksum_outside(file, {{400005, 499995}, {100, 399900}}),
            io::checksum(rest.data(), rest.size()));
  EXPECT_EQ(ckpt::checksum_outside(file, {{0, text.size()}}), io::checksum("", 0));
}

}  // namespace
}  // namespace trireme

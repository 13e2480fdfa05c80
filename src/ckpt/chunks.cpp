// ckpt/chunks.cpp — see chunks.hpp.
#include "ckpt/chunks.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::ckpt {

namespace {

std::size_t row_bytes(const Rectangle& place, DType dtype) {
  return static_cast<std::size_t>(place.columns) * size_of(dtype);
}

}  // namespace

index_t chunk_rows(const Rectangle& place, DType dtype) {
  return std::max<index_t>(1,
                           static_cast<index_t>(kChunkBytes / row_bytes(place, dtype)));
}

std::size_t chunk_count(const Rectangle& place, DType dtype) {
  const index_t rows = chunk_rows(place, dtype);
  return static_cast<std::size_t>((place.rows + rows - 1) / rows);
}

ChunkSums::ChunkSums(const Rectangle& place, DType dtype)
    : chunk_bytes_(row_bytes(place, dtype) *
                   static_cast<std::size_t>(chunk_rows(place, dtype))),
      left_(chunk_bytes_),
      expected_(chunk_count(place, dtype)) {}

void ChunkSums::update(const std::byte* data, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t now = std::min(bytes, left_);
    sum_.update(data, now);
    data += now;
    bytes -= now;
    left_ -= now;
    if (left_ > 0) continue;
    sums_.push_back(sum_.value());
    sum_ = io::Checksum();
    left_ = chunk_bytes_;
  }
}

std::vector<std::uint64_t> ChunkSums::finish() {
  if (left_ < chunk_bytes_) sums_.push_back(sum_.value());
  TRIREME_REQUIRE(sums_.size() == expected_, "{} of a block that has {}",
                  format_plural(sums_.size(), "chunk"), expected_);
  return std::move(sums_);
}

std::uint64_t checksum_outside(const io::FileReader& file,
                               std::vector<ByteRange> blocks) {
  std::ranges::sort(blocks, {}, &ByteRange::offset);
  blocks.push_back({file.size(), 0});
  io::Checksum sum;
  std::vector<std::byte> buffer;
  std::uint64_t at = 0;
  for (const ByteRange& block : blocks) {
    while (at < block.offset) {
      buffer.resize(std::min<std::uint64_t>(kPieceBytes, block.offset - at));
      file.read_at(at, buffer.data(), buffer.size());
      sum.update(buffer.data(), buffer.size());
      at += buffer.size();
    }
    at = std::max(at, block.offset + block.bytes);
  }
  return sum.value();
}

}  // namespace trireme::ckpt

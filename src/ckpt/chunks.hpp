// ckpt/chunks.hpp — how blocks are checksummed: in chunks of whole rows, so that who
// needs some rows of a block reads and verifies those alone; and each file as what it
// holds besides its blocks.
#ifndef TRIREME_CKPT_CHUNKS_HPP_
#define TRIREME_CKPT_CHUNKS_HPP_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "ckpt/region.hpp"
#include "io/checksum.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// Bytes that pass from disk to checksum to memory at a time: they stay in the cache.
inline constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
// What a chunk has at most, where a row has not more than that.
inline constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

// Rows of a full chunk of a block, and how many chunks it has.
index_t chunk_rows(const Rectangle& place, DType dtype);
std::size_t chunk_count(const Rectangle& place, DType dtype);

// The checksums of a block's chunks, from its bytes in order.
class ChunkSums {
 public:
  ChunkSums(const Rectangle& place, DType dtype);
  void update(const std::byte* data, std::size_t bytes);
  // The sums, once all bytes have come.
  std::vector<std::uint64_t> finish();

 private:
  std::size_t chunk_bytes_;
  std::size_t left_;  // of the chunk that is being filled
  std::size_t expected_;
  io::Checksum sum_;
  std::vector<std::uint64_t> sums_;
};

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
// XXH3 of the bytes of a file that lie in none of these (they do not overlap), in order.
std::uint64_t checksum_outside(const io::FileReader& file, std::vector<ByteRange> blocks);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_CHUNKS_HPP_

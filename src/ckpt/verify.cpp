// ckpt/verify.cpp — see verify.hpp.
#include "ckpt/verify.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::ckpt {

namespace {

// Reads a block and compares its chunks; the first that differs.
void check_block(const io::FileReader& file, const Manifest& manifest,
                 const BlockEntry& block, std::vector<std::string>& problems) {
  const ByteRange range = manifest.bytes_of(block);
  ChunkSums sums(block.place, manifest.tensors[block.tensor].dtype);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, range.bytes));
  for (std::uint64_t done = 0; done < range.bytes; done += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(kPieceBytes, range.bytes - done));
    file.read_at(range.offset + done, buffer.data(), buffer.size());
    sums.update(buffer.data(), buffer.size());
  }
  const std::vector<std::uint64_t> found = sums.finish();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == block.checksums[i]) continue;
    problems.push_back(damaged_chunk(file.path(), manifest, block, i, found[i]));
    return;
  }
}

void check_content(const io::FileReader& file, const Manifest& manifest,
                   const std::vector<std::size_t>& blocks, std::uint64_t expected,
                   std::vector<std::string>& problems) {
  std::vector<ByteRange> ranges;
  for (const std::size_t i : blocks) {
    ranges.push_back(manifest.bytes_of(manifest.blocks[i]));
    check_block(file, manifest, manifest.blocks[i], problems);
  }
  const std::string what = ranges.empty() ? "" : " outside its blocks";
  const std::uint64_t found = checksum_outside(file, std::move(ranges));
  if (found == expected) return;
  problems.push_back(fmt::format("'{}' is damaged{}: expected XXH3 {}, found {}",
                                 file.path().string(), what, io::to_hex(expected),
                                 io::to_hex(found)));
}

}  // namespace

std::string damaged_chunk(const Path& file, const Manifest& manifest,
                          const BlockEntry& block, std::size_t chunk,
                          std::uint64_t found) {
  const TensorEntry& tensor = manifest.tensors[block.tensor];
  const index_t rows = chunk_rows(block.place, tensor.dtype);
  Rectangle place = block.place;
  const index_t skipped = static_cast<index_t>(chunk) * rows;
  place.row += skipped;
  place.rows = std::min(rows, place.rows - skipped);
  const auto row_bytes =
      static_cast<std::uint64_t>(place.columns) * size_of(tensor.dtype);
  return fmt::format(
      "'{}' is damaged: {} bytes at offset {}, elements {} from {} of '{}': expected "
      "XXH3 "
      "{}, found {}",
      file.string(), static_cast<std::uint64_t>(place.rows) * row_bytes,
      block.offset + static_cast<std::uint64_t>(skipped) * row_bytes,
      to_string(extent_of(place, tensor.shape)), to_string(start_of(place, tensor.shape)),
      tensor.name, io::to_hex(block.checksums[chunk]), io::to_hex(found));
}

std::vector<std::string> problems_of_file(const Path& directory, const Manifest& manifest,
                                          std::size_t file,
                                          const std::vector<std::size_t>& blocks,
                                          Depth depth) {
  const FileEntry& entry = manifest.files[file];
  std::vector<std::string> problems;
  try {
    const io::FileReader reader(directory / entry.name);
    if (reader.size() != entry.bytes) {
      problems.push_back(
          fmt::format("'{}' is {}: expected {} bytes, found {}", reader.path().string(),
                      reader.size() < entry.bytes ? "truncated" : "too long", entry.bytes,
                      reader.size()));
    } else if (depth == Depth::checksums) {
      check_content(reader, manifest, blocks, entry.checksum, problems);
    }
  } catch (const InputError& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

std::vector<std::string> problems_of(const Path& directory, Depth depth) {
  std::vector<std::string> problems;
  try {
    const Manifest manifest = read_manifest(directory);
    const auto blocks = manifest.blocks_by_file();
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      const auto found = problems_of_file(directory, manifest, i, blocks[i], depth);
      problems.insert(problems.end(), found.begin(), found.end());
    }
  } catch (const InputError& error) {
    problems.emplace_back(error.what());
  }
  return problems;
}

}  // namespace trireme::ckpt

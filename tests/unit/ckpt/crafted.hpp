// tests/unit/ckpt/crafted.hpp — checkpoints as a writer with an error would leave them,
// or someone who means it: changed, and all sums made right again.
#ifndef TRIREME_TESTS_UNIT_CKPT_CRAFTED_HPP_
#define TRIREME_TESTS_UNIT_CKPT_CRAFTED_HPP_

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/chunks.hpp"
#include "ckpt/manifest.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

using ManifestChange = std::function<void(ckpt::Manifest&)>;

// Not check()ed.
inline ckpt::Manifest manifest_of(const std::filesystem::path& step) {
  return ckpt::Manifest::from_text(slurp(step / ckpt::kManifestName), "m");
}

// The first line of a manifest's text, made right for what follows it.
inline std::string with_right_sum(const std::string& text) {
  const std::string body = text.substr(text.find('\n') + 1);
  const std::string sum = io::to_hex(io::checksum(body.data(), body.size()));
  return "{\"xxh3\": \"" + sum + "\",\n" + body;
}

// A text of the manifest replaced by another; it has to be there.
inline void replace_in_manifest(const std::filesystem::path& step,
                                const std::string& what, const std::string& by) {
  std::string text = slurp(step / ckpt::kManifestName);
  const std::size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos) << what;
  text.replace(at, what.size(), by);
  spill(step / ckpt::kManifestName, with_right_sum(text));
}

// Changes the manifest, then sets every size and sum in it to what is in the files now.
inline void make_right(const std::filesystem::path& step,
                       const ManifestChange& change = {}) {
  ckpt::Manifest manifest = manifest_of(step);
  if (change) change(manifest);
  const auto blocks = manifest.blocks_by_file();
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    const io::FileReader reader(step / manifest.files[f].name);
    std::vector<ckpt::ByteRange> ranges;
    for (const std::size_t b : blocks[f]) {
      ckpt::BlockEntry& block = manifest.blocks[b];
      ranges.push_back(manifest.bytes_of(block));
      std::vector<std::byte> bytes(ranges.back().bytes);
      reader.read_at(block.offset, bytes.data(), bytes.size());
      ckpt::ChunkSums sums(block.place, manifest.tensors[block.tensor].dtype);
      sums.update(bytes.data(), bytes.size());
      block.checksums = sums.finish();
    }
    manifest.files[f].bytes = reader.size();
    manifest.files[f].checksum = ckpt::checksum_outside(reader, std::move(ranges));
  }
  spill(step / ckpt::kManifestName, manifest.to_text());
}

// An attribute of index.h5 or of a shard.
template <class T>
void set_attribute(const std::filesystem::path& file, const std::string& name, T value) {
  io::H5File h5 = io::H5File::open_for_writing(file);
  h5.set_attribute(name, value);
  h5.close();
}

// One element of a tensor, of the first block that begins with it, where it lies.
template <class T>
void set_element(const std::filesystem::path& step, const std::string& tensor,
                 index_t number, T value) {
  const ckpt::Manifest manifest = manifest_of(step);
  const auto block = std::find_if(manifest.blocks.begin(), manifest.blocks.end(),
                                  [&](const ckpt::BlockEntry& b) {
                                    return manifest.tensors[b.tensor].name == tensor;
                                  });
  ASSERT_NE(block, manifest.blocks.end()) << tensor;
  io::FileWriter file(step / manifest.files[block->file].name,
                      io::FileWriter::Mode::existing);
  file.write_at(block->offset + static_cast<std::uint64_t>(number) * sizeof(T), &value,
                sizeof(T));
  file.close();
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_CKPT_CRAFTED_HPP_

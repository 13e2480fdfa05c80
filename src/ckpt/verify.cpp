// ckpt/verify.cpp — see verify.hpp.
//
// Checks go from cheap to expensive, and a file in which one has found something is not
// looked at by the next: what is found first is usually the cause of the rest. Sizes and
// stamps need a few bytes of each file, the index needs HDF5, and checksums read
// everything. Several problems of one kind are cut to a few, since one wrong shard can
// make thousands.
#include "ckpt/verify.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "ckpt/numbers.hpp"
#include "io/hdf5.hpp"

namespace trireme::ckpt {

namespace {

// More of one kind says nothing new (a shard of other sums, weights that are all NaN).
constexpr std::size_t kListed = 12;

void cut_list(std::vector<std::string>& problems, const Path& file) {
  if (problems.size() <= kListed) return;
  const std::size_t more = problems.size() - kListed;
  problems.resize(kListed);
  problems.push_back(fmt::format("'{}': {} more problems", file.string(), more));
}

// Reads a block and returns the problem of the first chunk whose checksum differs. Its
// numbers are looked at on the way.
std::string check_block(const io::FileReader& file, const Manifest& manifest,
                        const BlockEntry& block, BadNumbers& numbers) {
  const ByteRange range = manifest.bytes_of(block);
  const DType dtype = manifest.tensors[block.tensor].dtype;
  ChunkSums sums(block.place, dtype);
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPieceBytes, range.bytes));
  for (std::uint64_t done = 0; done < range.bytes; done += buffer.size()) {
    buffer.resize(std::min<std::uint64_t>(kPieceBytes, range.bytes - done));
    file.read_at(range.offset + done, buffer.data(), buffer.size());
    sums.update(buffer.data(), buffer.size());
    numbers.look_at(block.place, static_cast<index_t>(done / size_of(dtype)),
                    buffer.data(), buffer.size());
  }
  const std::vector<std::uint64_t> found = sums.finish();
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == block.checksums[i]) continue;
    return damaged_chunk(file.path(), manifest, block, i, found[i]);
  }
  return "";
}

// What HDF5 shows of a shard has to be what the manifest says: the same blocks at the
// same places, and nothing that leads elsewhere.
std::vector<std::string> structure_problems(const Path& path, const Manifest& manifest,
                                            const std::vector<std::size_t>& blocks) {
  const io::H5File file = io::H5File::open(path);
  std::vector<std::string> problems;
  const auto note = [&](const std::string& what) {
    problems.push_back(fmt::format("'{}': {}", path.string(), what));
  };
  std::set<std::string> found;
  for (const io::H5Entry& entry : file.tree()) {
    if (entry.kind == io::H5Entry::Kind::link) note("/" + entry.path + " is a link");
    if (entry.kind == io::H5Entry::Kind::dataset) found.insert(entry.path);
  }
  if (!manifest.is_old()) found.erase(kStampName);
  if (const auto step = file.attribute<std::int64_t>("step"); step != manifest.step) {
    note(fmt::format("it is of step {}, the checkpoint of {}", step, manifest.step));
  }
  for (const std::size_t i : blocks) {
    const BlockEntry& block = manifest.blocks[i];
    const TensorEntry& tensor = manifest.tensors[block.tensor];
    if (found.erase(block.dataset) == 0) {
      note(fmt::format("it has no dataset '{}'", block.dataset));
      continue;
    }
    const io::H5Dataset dataset = file.dataset(block.dataset);
    const bool is_same =
        dataset.dtype() == tensor.dtype && dataset.offset() == block.offset &&
        dataset.shape() == extent_of(block.place, tensor.shape) &&
        dataset.attribute<Shape>("start") == start_of(block.place, tensor.shape) &&
        dataset.attribute<Shape>("global_shape") == tensor.shape;
    if (!is_same) {
      note(
          fmt::format("its dataset '{}' is another block than {} says, or lies elsewhere",
                      block.dataset, kManifestName));
    }
  }
  for (const std::string& name : found) {
    note(fmt::format("its dataset '{}' is in no block of {}", name, kManifestName));
  }
  return problems;
}

using NumbersByTensor = std::map<std::size_t, BadNumbers>;

// Reads all of a file and returns which of its checksums differ.
std::vector<std::string> sum_problems(const io::FileReader& file,
                                      const Manifest& manifest, std::size_t number,
                                      const std::vector<std::size_t>& blocks,
                                      NumbersByTensor& numbers) {
  std::vector<std::string> problems;
  std::vector<ByteRange> ranges;
  for (const std::size_t i : blocks) {
    const BlockEntry& block = manifest.blocks[i];
    ranges.push_back(manifest.bytes_of(block));
    BadNumbers& here =
        numbers.try_emplace(block.tensor, manifest.tensors[block.tensor]).first->second;
    const std::string problem = check_block(file, manifest, block, here);
    if (!problem.empty()) problems.push_back(problem);
  }
  const std::string what = ranges.empty() ? "" : " outside its blocks";
  const std::uint64_t found = checksum_outside(file, std::move(ranges));
  const std::uint64_t expected = manifest.files[number].checksum;
  if (found != expected) {
    problems.push_back(fmt::format("'{}' is damaged{}: expected XXH3 {}, found {}",
                                   file.path().string(), what, io::to_hex(expected),
                                   io::to_hex(found)));
  }
  return problems;
}

// The problems of a file whose size is right. What is found first may be the cause of
// what comes after it, which is then not looked for.
std::vector<std::string> content_problems(const io::FileReader& file,
                                          const Manifest& manifest, std::size_t number,
                                          const std::vector<std::size_t>& blocks,
                                          bool reads_all) {
  NumbersByTensor numbers;
  std::vector<std::string> problems;
  if (reads_all) problems = sum_problems(file, manifest, number, blocks, numbers);
  if (!problems.empty()) return problems;
  const std::string stamp = stamp_problem(file, manifest, number, blocks);
  if (!stamp.empty()) return {stamp};
  if (!reads_all || blocks.empty()) return {};
  problems = structure_problems(file.path(), manifest, blocks);
  for (const auto& [tensor, bad] : numbers) {
    if (bad.count() == 0) continue;
    problems.push_back(fmt::format("'{}': {}", file.path().string(), bad.text()));
  }
  return problems;
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
      "'{}' is damaged: {} at offset {}, elements {} from {} of '{}': expected "
      "XXH3 "
      "{}, found {}",
      file.string(),
      format_plural(
          static_cast<std::int64_t>(static_cast<std::uint64_t>(place.rows) * row_bytes),
          "byte"),
      block.offset + static_cast<std::uint64_t>(skipped) * row_bytes,
      to_string(extent_of(place, tensor.shape)), to_string(start_of(place, tensor.shape)),
      tensor.name, io::to_hex(block.checksums[chunk]), io::to_hex(found));
}

std::string stamp_problem(const io::FileReader& reader, const Manifest& manifest,
                          std::size_t file, const std::vector<std::size_t>& blocks) {
  const FileEntry& entry = manifest.files[file];
  if (!entry.stamp) return "";
  const std::string expected = manifest.stamp_of(blocks);
  std::string found(kStampBytes, '\0');
  reader.read_at(*entry.stamp, found.data(), found.size());
  if (found == expected) return "";
  // The stamps are compared up to the sum over where their blocks lie.
  const std::size_t identity = expected.find(" blocks ");
  if (found.substr(0, identity) == expected.substr(0, identity)) {
    return fmt::format(
        "'{}': the blocks do not lie where {} says: one of them was changed",
        reader.path().string(), kManifestName);
  }
  const bool is_text = std::all_of(found.begin(), found.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n';
  });
  return fmt::format(
      "'{}' is of another checkpoint: its stamp is '{}', expected '{}'. Put the right "
      "file "
      "back, or take another checkpoint",
      reader.path().string(), is_text ? found.substr(0, identity) : "(no text)",
      expected.substr(0, identity));
}

std::vector<std::string> problems_of_file(const Path& directory, const Manifest& manifest,
                                          std::size_t file,
                                          const std::vector<std::size_t>& blocks,
                                          Depth depth) {
  const FileEntry& entry = manifest.files[file];
  const bool reads_all =
      depth == Depth::checksums || (depth == Depth::index && entry.name == kIndexName);
  std::vector<std::string> problems;
  try {
    const io::FileReader reader(directory / entry.name);
    if (reader.size() != entry.bytes) {
      problems.push_back(
          fmt::format("'{}' is {}: expected {}, found {}", reader.path().string(),
                      reader.size() < entry.bytes ? "truncated" : "too long",
                      format_plural(entry.bytes, "byte"), format_grouped(reader.size())));
      return problems;
    }
    problems = content_problems(reader, manifest, file, blocks, reads_all);
    cut_list(problems, reader.path());
  } catch (const io::ReadError&) {
    throw;
  } catch (const io::UnreadableError&) {
    throw;
  } catch (const Error& error) {  // HDF5's, too, of a file that was written so
    problems.emplace_back(error.what());
  }
  return problems;
}

Findings examine(const Path& directory, Depth depth) {
  Findings findings;
  const auto note_unreadable = [&](const io::UnreadableError& error) {
    findings.problems.emplace_back(error.what());
    findings.unreadable.emplace_back(error.what());
  };
  try {
    findings.manifest = read_manifest(directory);
    const Manifest& manifest = *findings.manifest;
    const auto blocks = manifest.blocks_by_file();
    bool index_is_whole = true;
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      const std::size_t before = findings.problems.size();
      try {
        const auto found = problems_of_file(directory, manifest, i, blocks[i], depth);
        findings.problems.insert(findings.problems.end(), found.begin(), found.end());
      } catch (const io::UnreadableError& error) {
        note_unreadable(error);
      }
      if (manifest.files[i].name == kIndexName) {
        index_is_whole = findings.problems.size() == before;
      }
    }
    if (index_is_whole && depth != Depth::sizes) {
      findings.state = read_index(directory, manifest);
    }
  } catch (const io::UnreadableError& error) {
    note_unreadable(error);
  } catch (const InputError& error) {
    findings.problems.emplace_back(error.what());
  }
  return findings;
}

std::vector<std::string> problems_of(const Path& directory, Depth depth) {
  return examine(directory, depth).problems;
}

}  // namespace trireme::ckpt

// ckpt/shard_writer.cpp — see shard_writer.hpp.
//
// Writing is cut into steps that each fit a thread and that can fail in one way only:
// outline_of() lists the blocks, lay_out_shard() lets HDF5 make the file with room for
// them, and write_blocks() fills the room with plain writes, which may come from several
// ranks. Before these, Snapshot::take() begins to copy the state to pinned memory: a
// GPU's copy engine does it beside the passes of the next step, whose update waits for
// it; a host's threads do it at once. Without a snapshot, regions with gaps between their
// rows are packed into a staging buffer, as many rows as fit; a region without gaps is
// written from where it lies.
#include "ckpt/shard_writer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"

namespace trireme::ckpt {

namespace {

// What is written between two syncs, about: a slow disk shows progress, and a save that
// fails does so early.
constexpr std::uint64_t kSyncBytes = std::uint64_t{1} << 30;
// What is written before the disk is told to begin with it, beside what is written next.
constexpr std::uint64_t kPushBytes = std::uint64_t{8} << 20;

// Hands the bytes of a region to `take` in order, at most kStagingBytes at a time.
class RegionReader {
 public:
  explicit RegionReader(const Exec& exec) : exec_(exec) {}

  template <class Take>
  void read(const TensorPart& part, const Region& region, const Take& take) {
    const std::size_t size = size_of(part.dtype);
    const bool gapless =
        region.global.rows == 1 || region.global.columns == region.local_stride;
    const index_t runs = gapless ? 1 : region.global.rows;
    const std::size_t run_bytes =
        size * static_cast<std::size_t>(region.global.elements() / runs);
    if (!gapless && run_bytes < kStagingBytes) {
      read_rows(part, region, run_bytes, take);
      return;
    }
    for (index_t run = 0; run < runs; ++run) {
      const std::byte* from =
          part.data + size * static_cast<std::size_t>(region.local_offset +
                                                      run * region.local_stride);
      for (std::size_t done = 0; done < run_bytes; done += kStagingBytes) {
        const std::size_t bytes = std::min(kStagingBytes, run_bytes - done);
        const RowCopy piece{.from = from + done, .row_bytes = bytes};
        take(on_host(part) ? piece.from : packed(part, piece), bytes);
      }
    }
  }

 private:
  // Rows with gaps between them: packed, as many as fit.
  template <class Take>
  void read_rows(const TensorPart& part, const Region& region, std::size_t row_bytes,
                 const Take& take) {
    const std::size_t stride =
        size_of(part.dtype) * static_cast<std::size_t>(region.local_stride);
    const auto rows = static_cast<std::size_t>(region.global.rows);
    const std::size_t at_once = kStagingBytes / std::max<std::size_t>(1, row_bytes);
    const std::byte* from =
        part.data + size_of(part.dtype) * static_cast<std::size_t>(region.local_offset);
    for (std::size_t row = 0; row < rows; row += at_once) {
      const RowCopy piece{.from = from + row * stride,
                          .rows = std::min(at_once, rows - row),
                          .row_bytes = row_bytes,
                          .stride = stride};
      take(packed(part, piece), piece.bytes());
    }
  }

  static bool on_host(const TensorPart& part) { return kHostExecution || part.on_host; }

  // Rows without their gaps, in host memory until the next call.
  const std::byte* packed(const TensorPart& part, RowCopy piece) {
    if (staging_.size() < piece.bytes()) {
      staging_ = PinnedArray<std::byte>(
          Kokkos::view_alloc(Kokkos::WithoutInitializing, "staging"), piece.bytes());
    }
    piece.to = staging_.data();
    if (!on_host(part)) {
      copy_rows_to_host(exec_, {&piece, 1});
      copied_.record(exec_);
      copied_.wait();
      return staging_.data();
    }
    for (std::size_t i = 0; i < piece.rows; ++i) {
      std::memcpy(piece.to + i * piece.row_bytes, piece.from + i * piece.stride,
                  piece.row_bytes);
    }
    return staging_.data();
  }

  const Exec& exec_;
  PinnedArray<std::byte> staging_;
  Event copied_;
};

std::uint64_t place_in_file(const io::H5Dataset& dataset) {
  const auto offset = dataset.offset();
  TRIREME_REQUIRE(offset.has_value(), "HDF5 gave {} of '{}' no place in the file",
                  dataset.name(), dataset.file());
  return *offset;
}

}  // namespace

const std::vector<FaultPhase>& save_phases() {
  static const std::vector<FaultPhase> phases = {
      {"ckpt.stage", true},       {"ckpt.begin", true},  {"ckpt.layout", true, true},
      {"ckpt.write", true, true}, {"ckpt.flush", true},  {"ckpt.index", true, true},
      {"ckpt.manifest", true},    {"ckpt.rename", true}, {"ckpt.publish", true},
      {"ckpt.purge", true},       {"ckpt.end"}};
  return phases;
}

void enter_phase(const FaultHook& hook, const char* phase, const Path& path) {
  if (!hook) return;
  const Fault fault = hook(phase);
  if (fault == Fault::no_space || fault == Fault::io_error) {
    throw Error(io::system_message("cannot write", path,
                                   fault == Fault::no_space ? ENOSPC : EIO));
  }
}

std::size_t Snapshot::bytes_of(const std::vector<TensorPart>& parts) {
  std::size_t total = 0;
  for (const TensorPart& part : parts) {
    for (const Region& region : part.regions) {
      total += static_cast<std::size_t>(region.global.elements()) * size_of(part.dtype);
    }
  }
  return total;
}

void Snapshot::reserve(const Exec& exec, std::size_t bytes) {
  queue_.prepare(exec);
  if (memory_.size() == bytes) return;
  memory_ = {};
  memory_ =
      decltype(memory_)("snapshot", bytes);  // zeros: its pages are there from now on
}

void Snapshot::take(const Exec& exec, const std::vector<TensorPart>& parts) {
  reserve(exec, bytes_of(parts));
  parts_ = parts;
  std::vector<RowCopy> from_host, from_device;
  std::byte* next = memory_.data();
  for (TensorPart& part : parts_) {
    const std::size_t size = size_of(part.dtype);
    std::byte* const begin = next;
    index_t offset = 0;
    for (Region& region : part.regions) {
      const RowCopy copy{next,
                         part.data + size * static_cast<std::size_t>(region.local_offset),
                         static_cast<std::size_t>(region.global.rows),
                         size * static_cast<std::size_t>(region.global.columns),
                         size * static_cast<std::size_t>(region.local_stride)};
      (part.on_host ? from_host : from_device).push_back(copy);
      next += copy.bytes();
      region.local_offset = offset;
      region.local_stride = region.global.columns;
      offset += region.global.elements();
    }
    part.data = begin;
    part.on_host = true;
  }
  queue_.start(exec, from_device);
  copy_rows(from_host);
}

Manifest outline_of(const std::vector<TensorPart>& parts) {
  Manifest outline;
  outline.files.push_back({});  // the one that all blocks will be in
  for (const TensorPart& part : parts) {
    if (part.regions.empty()) continue;
    for (const Region& region : part.regions) {
      outline.blocks.push_back({outline.tensors.size(), 0, "", 0, {}, region.global});
    }
    outline.tensors.push_back({part.name, part.dtype, part.global_shape});
  }
  return outline;
}

namespace {

// Makes the blocks' datasets and sets their places.
void make_blocks(io::H5File& file, Manifest& shard) {
  std::map<std::size_t, int> counts;  // of a tensor's blocks so far
  for (BlockEntry& block : shard.blocks) {
    const TensorEntry& tensor = shard.tensors[block.tensor];
    block.dataset = fmt::format("{}/{}", tensor.name, counts[block.tensor]++);
    io::H5Dataset dataset = file.make_dataset(block.dataset, tensor.dtype,
                                              extent_of(block.place, tensor.shape));
    // With these attributes a shard tells by itself what it holds.
    dataset.set_attribute("start", start_of(block.place, tensor.shape));
    dataset.set_attribute("global_shape", tensor.shape);
    block.offset = place_in_file(dataset);
  }
}

}  // namespace

Manifest lay_out_shard(const Staging& staging, int writer,
                       const std::vector<Manifest>& outlines, const FaultHook& hook) {
  Manifest shard;
  shard.merge(outlines);
  if (shard.blocks.empty()) return {};
  shard.set_identity(staging.identity);
  const Path path = staging.path / fmt::format("shard_{:05}.h5", writer);
  FileEntry& entry = shard.files.at(0);
  entry.name = path.filename().string();
  const Fault fault = hook ? hook("ckpt.layout") : Fault::none;
  io::H5File file = io::H5File::create(path);
  file.fail_writes(fault);
  file.set_attribute("format", std::string("trireme-checkpoint-shard"));
  file.set_attribute("step", shard.step);
  file.set_attribute("writer", std::int64_t{writer});
  io::H5Dataset stamp = file.make_dataset(kStampName, DType::uint8, {kStampBytes});
  entry.stamp = place_in_file(stamp);
  make_blocks(file, shard);
  const std::string text = shard.stamp_of(shard.blocks_by_file().at(0));
  stamp.write_rows(0, kStampBytes, text.data(), text.size());
  file.close();
  std::vector<ByteRange> ranges;
  for (const BlockEntry& block : shard.blocks) ranges.push_back(shard.bytes_of(block));
  const io::FileReader written(path);
  entry.bytes = written.size();
  entry.checksum = checksum_outside(written, std::move(ranges));
  // The file is reserved and synced by the rank that made it, because others that write
  // to it may be on other nodes.
  io::FileWriter file_on_disk(path, io::FileWriter::Mode::existing);
  file_on_disk.reserve(entry.bytes);
  if (outlines.size() > 1) file_on_disk.sync();
  return shard;
}

void write_blocks(const Exec& exec, const Path& directory,
                  const std::vector<TensorPart>& parts, Manifest& shard,
                  const FaultHook& hook) {
  if (shard.blocks.empty()) return;
  const Path path = directory / shard.files.at(0).name;
  io::FileWriter file(path, io::FileWriter::Mode::existing);
  RegionReader reader(exec);
  std::size_t next = 0;
  std::uint64_t unsynced = 0;
  std::uint64_t pushed = shard.blocks.front().offset;  // they follow each other
  for (const TensorPart& part : parts) {
    for (const Region& region : part.regions) {
      BlockEntry& block = shard.blocks.at(next++);
      if (unsynced >= kSyncBytes) {
        file.sync();
        unsynced = 0;
      }
      if (hook) file.inject(hook("ckpt.write"));
      std::uint64_t at = block.offset;
      ChunkSums sums(block.place, part.dtype);
      reader.read(part, region, [&](const std::byte* data, std::size_t bytes) {
        for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
          const std::size_t now = std::min(kPieceBytes, bytes - done);
          sums.update(data + done, now);
          file.write_at(at, data + done, now);
          at += now;
        }
        if (at >= pushed + kPushBytes) {
          file.push(pushed, at - pushed);
          pushed = at;
        }
      });
      block.checksums = sums.finish();
      unsynced += at - block.offset;
    }
  }
  TRIREME_REQUIRE(next == shard.blocks.size(), "{} written of {}",
                  format_plural(next, "block"), shard.blocks.size());
  enter_phase(hook, "ckpt.flush", path);
  file.sync();
  file.close();
}

}  // namespace trireme::ckpt

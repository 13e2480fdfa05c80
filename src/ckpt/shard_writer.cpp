// ckpt/shard_writer.cpp — see shard_writer.hpp.
#include "ckpt/shard_writer.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/checksum.hpp"
#include "io/hdf5.hpp"

namespace trireme::ckpt {

namespace {

using HostBytes =
    Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
using ConstDeviceBytes = DeviceView<const std::byte*>;

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
        take(on_host(part, from + done, bytes), bytes);
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
    const std::size_t at_once = std::max<std::size_t>(1, kStagingBytes / stride);
    const std::byte* from =
        part.data + size_of(part.dtype) * static_cast<std::size_t>(region.local_offset);
    for (std::size_t row = 0; row < rows; row += at_once) {
      const std::size_t count = std::min(at_once, rows - row);
      const std::byte* here =
          on_host(part, from + row * stride, (count - 1) * stride + row_bytes);
      packed_.resize(count * row_bytes);
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(packed_.data() + i * row_bytes, here + i * stride, row_bytes);
      }
      take(packed_.data(), packed_.size());
    }
  }

  const std::byte* on_host(const TensorPart& part, const std::byte* data,
                           std::size_t bytes) {
    if (kHostExecution || part.on_host) return data;
    staging_.resize(std::max(staging_.size(), bytes));
    Kokkos::deep_copy(exec_.space(), HostBytes(staging_.data(), bytes),
                      ConstDeviceBytes(data, bytes));
    exec_.fence("trireme::ckpt::stage");
    return staging_.data();
  }

  const Exec& exec_;
  std::vector<std::byte> staging_;
  std::vector<std::byte> packed_;
};

// Lays out the shard's datasets and returns its manifest, checksums still to come.
Manifest lay_out(const Path& path, int writer, std::int64_t step,
                 const std::vector<TensorPart>& parts) {
  Manifest manifest;
  manifest.step = step;
  manifest.files.push_back({path.filename().string(), 0, 0});
  io::H5File file = io::H5File::create(path);
  file.set_attribute("format", std::string("trireme-checkpoint-shard"));
  file.set_attribute("step", step);
  file.set_attribute("writer", std::int64_t{writer});
  for (const TensorPart& part : parts) {
    if (part.regions.empty()) continue;
    const std::size_t tensor = manifest.tensors.size();
    manifest.tensors.push_back({part.name, part.dtype, part.global_shape});
    for (std::size_t i = 0; i < part.regions.size(); ++i) {
      const Rectangle& place = part.regions[i].global;
      const std::string name = fmt::format("{}/{}", part.name, i);
      io::H5Dataset dataset =
          file.make_dataset(name, part.dtype, extent_of(place, part.global_shape));
      // So that a shard tells by itself what it holds.
      dataset.set_attribute("start", start_of(place, part.global_shape));
      dataset.set_attribute("global_shape", part.global_shape);
      const auto offset = dataset.offset();
      TRIREME_REQUIRE(offset.has_value(), "HDF5 gave {} of '{}' no place in the file",
                      name, path.string());
      manifest.blocks.push_back({tensor, 0, name, *offset, 0, place});
    }
  }
  file.close();
  return manifest;
}

}  // namespace

const std::vector<std::string>& save_phases() {
  static const std::vector<std::string> phases = {
      "save.begun",   "shard.created", "shard.half",       "shard.written",
      "shard.synced", "index.written", "manifest.written", "save.synced",
      "save.renamed", "save.linked",   "save.purging",     "save.purged"};
  return phases;
}

Snapshot take_snapshot(const Exec& exec, const std::vector<TensorPart>& parts) {
  Snapshot snapshot;
  std::size_t total = 0;
  for (const TensorPart& part : parts) {
    for (const Region& region : part.regions) {
      total += static_cast<std::size_t>(region.global.elements()) * size_of(part.dtype);
    }
  }
  snapshot.memory = HostArray<std::byte>(
      Kokkos::view_alloc("snapshot", Kokkos::WithoutInitializing), total);
  std::byte* next = snapshot.memory.data();
  exec.fence("trireme::ckpt::take_snapshot");
  RegionReader reader(exec);
  for (const TensorPart& part : parts) {
    TensorPart copy = part;
    copy.data = next;
    copy.on_host = true;
    index_t offset = 0;
    for (Region& region : copy.regions) {
      reader.read(part, region, [&](const std::byte* data, std::size_t bytes) {
        std::memcpy(next, data, bytes);
        next += bytes;
      });
      region.local_offset = offset;
      region.local_stride = region.global.columns;
      offset += region.global.elements();
    }
    snapshot.parts.push_back(std::move(copy));
  }
  return snapshot;
}

Manifest write_shard(const Exec& exec, const Path& directory, int writer,
                     std::int64_t step, const std::vector<TensorPart>& parts,
                     const FaultHook& hook) {
  const auto phase = [&](const char* name) {
    if (hook) hook(name);
  };
  const bool nothing =
      std::all_of(parts.begin(), parts.end(),
                  [](const TensorPart& part) { return part.regions.empty(); });
  if (nothing) return {};
  exec.fence("trireme::ckpt::write_shard");
  const Path path = directory / fmt::format("shard_{:05}.h5", writer);
  Manifest manifest = lay_out(path, writer, step, parts);
  phase("shard.created");
  io::FileWriter file(path, io::FileWriter::Mode::existing);
  file.reserve(io::file_size(path));
  RegionReader reader(exec);
  std::size_t block = 0;
  for (const TensorPart& part : parts) {
    for (const Region& region : part.regions) {
      if (block == manifest.blocks.size() / 2) phase("shard.half");
      BlockEntry& entry = manifest.blocks[block++];
      std::uint64_t at = entry.offset;
      io::Checksum sum;
      reader.read(part, region, [&](const std::byte* data, std::size_t bytes) {
        sum.update(data, bytes);
        file.write_at(at, data, bytes);
        at += bytes;
      });
      entry.checksum = sum.value();
    }
  }
  phase("shard.written");
  file.sync();
  file.close();
  const io::FileSum sum = io::checksum_file(path);
  manifest.files[0].bytes = sum.bytes;
  manifest.files[0].checksum = sum.checksum;
  phase("shard.synced");
  return manifest;
}

}  // namespace trireme::ckpt

// ckpt/shard_writer.hpp — what one rank writes: its blocks, each once, in shard_NNNNN.h5.
//
// HDF5 lays the file out; the data are then written at the datasets' offsets with plain
// writes, each block's checksum taken on the way. Device memory passes through a bounded
// staging buffer. No MPI call: a background thread may do it.
#ifndef TRIREME_CKPT_SHARD_WRITER_HPP_
#define TRIREME_CKPT_SHARD_WRITER_HPP_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/exec.hpp"
#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

// Called at each phase of a save, by name, in order; tests and `--fault` kill the run
// there. Rank and shard: "shard.created", "shard.half", "shard.written", "shard.synced";
// rank 0 also "save.begun", "index.written", "manifest.written", "save.synced",
// "save.renamed", "save.linked", "save.purging", "save.purged".
using FaultHook = std::function<void(std::string_view phase)>;

// The names of all phases of a save by one rank, in order.
const std::vector<std::string>& save_phases();

// One tensor's part that this rank owns and writes.
struct TensorPart {
  std::string name;  // with its prefix, "model/..."
  DType dtype = DType::float32;
  Shape global_shape;
  std::vector<Region> regions;
  const std::byte* data = nullptr;  // the local array the regions lie in
  bool on_host = false;             // else in device memory
};

// A copy on the host of what parts show, so that training may go on while it is written.
struct Snapshot {
  std::vector<TensorPart> parts;
  HostArray<std::byte> memory;
};
Snapshot take_snapshot(const Exec& exec, const std::vector<TensorPart>& parts);

// Writes and syncs the shard; returns its file, tensors and blocks. A rank that owns
// nothing writes no file.
Manifest write_shard(const Exec& exec, const Path& directory, int writer,
                     std::int64_t step, const std::vector<TensorPart>& parts,
                     const FaultHook& hook = {});

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_SHARD_WRITER_HPP_

// ckpt/shard_writer.hpp — shard_NNNNN.h5: the blocks of one rank, or of several that
// share a file, each once.
//
// HDF5 lays the file out, with a stamp that says what it is of (manifest.hpp); the data
// are then written at the datasets' offsets with plain writes, by every rank its own,
// each chunk's checksum taken on the way. Device memory that is written from where it is
// passes through a bounded staging buffer. No MPI call: a background thread may do it.
#ifndef TRIREME_CKPT_SHARD_WRITER_HPP_
#define TRIREME_CKPT_SHARD_WRITER_HPP_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/copy_queue.hpp"
#include "base/event.hpp"
#include "base/exec.hpp"
#include "base/fault_plan.hpp"
#include "base/pinned.hpp"
#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

// Called where each phase of a save begins, by its name: tests and `--fault` kill the run
// there, or make the next write go wrong.
using FaultHook = std::function<Fault(std::string_view phase)>;

// The phases, in order; "ckpt.write" comes before each block, "ckpt.purge" before each
// checkpoint that is removed.
//   every rank   ckpt.stage (copy to the host), ckpt.layout, ckpt.write, ckpt.flush
//   rank 0       ckpt.begin, ckpt.index, ckpt.manifest, ckpt.rename, ckpt.publish (the
//                link), ckpt.purge, ckpt.end
const std::vector<FaultPhase>& save_phases();
// Calls the hook; throws where a write shall fail that is none of a FileWriter's.
void enter_phase(const FaultHook& hook, const char* phase, const Path& path);

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
// It is made beside what is launched next; its memory is pinned, and kept from one copy
// to the next.
class Snapshot {
 public:
  // Bytes that a copy of the parts takes.
  static std::size_t bytes_of(const std::vector<TensorPart>& parts);
  // Takes memory for so many bytes, and the queue of copies beside `exec`.
  void reserve(const Exec& exec, std::size_t bytes);
  bool is_prepared() const { return queue_.is_prepared(); }
  std::size_t bytes() const { return memory_.size(); }
  // Begins to copy what is there once all that was launched on `exec` has ended. On
  // return parts on the host may change; those on a device once they are held up by
  // taken(), as parts() may be read.
  void take(const Exec& exec, const std::vector<TensorPart>& parts);
  const Event& taken() const { return queue_.done(); }
  const std::vector<TensorPart>& parts() const { return parts_; }

 private:
  std::vector<TensorPart> parts_;
  PinnedArray<std::byte> memory_;
  CopyQueue queue_;
};

// A checkpoint that is being written: where, and what its parts will be known by.
struct Staging {
  Path path;
  Identity identity;
};

// The blocks that parts will make, without places: what a rank tells who lays out the
// file it shares.
Manifest outline_of(const std::vector<TensorPart>& parts);

// Makes the file with room for the blocks of all outlines, in their order, and returns it
// with their places. Its size and what it holds besides the blocks do not change any
// more. No blocks: no file.
Manifest lay_out_shard(const Staging& staging, int writer,
                       const std::vector<Manifest>& outlines, const FaultHook& hook = {});

// Writes and syncs the blocks of `shard`, which are those of the parts, and sets their
// checksums.
void write_blocks(const Exec& exec, const Path& directory,
                  const std::vector<TensorPart>& parts, Manifest& shard,
                  const FaultHook& hook = {});

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_SHARD_WRITER_HPP_

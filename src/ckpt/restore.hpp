// ckpt/restore.hpp — the checkpoint that a start goes on from: opened, checked, read by
// all ranks, each its part; and the next older one where it turns out to be damaged.
//
// Nothing is read twice: every chunk's checksum is checked as it is read.
#ifndef TRIREME_CKPT_RESTORE_HPP_
#define TRIREME_CKPT_RESTORE_HPP_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "ckpt/reader.hpp"
#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

class Restore {
 public:
  // Each rank for itself; InputError where it cannot be used. Any other error is none of
  // the checkpoint's: all ranks throw it.
  using Use = std::function<void(const ckpt::CheckpointReader&)>;

  // Newest first: the first is to be read, the others may stand in for it.
  struct Candidates {
    std::vector<io::Path> paths;
    std::optional<ckpt::Manifest> manifest;  // of the first, where rank 0 has read it
  };

  // Collective.
  Restore(comm::Communicator& world, Candidates candidates, Log& log);
  // What a checkpoint's name stands for (ckpt::find_newest); the log is told of newer
  // ones that are cut or incomplete.
  static Candidates candidates_of(comm::Communicator& world, const io::Path& path,
                                  Log& log);

  const ckpt::CheckpointReader& reader() const { return *reader_; }
  std::int64_t step() const { return reader_->state().step; }

  // Collective. Every rank reads its part by `load`. Where one finds damage, the log says
  // what and where, and all read the next older one, once `check` has nothing against it.
  // InputError where none is left.
  void read(const Use& load, const Use& check);
  // Collective: reads all files, divided among the ranks, for who needs no tensor of it.
  void verify();

  // Bytes that all ranks together read of the checkpoint; seconds are the slowest's.
  std::uint64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }

 private:
  void fall_back(const std::string& problems);
  std::string advice();  // what may be named in its place

  comm::Communicator& world_;
  io::Path path_;                           // that is read, or was tried last
  std::vector<io::Path> older_;             // that may stand in for it
  std::optional<ckpt::Manifest> manifest_;  // of the first of these
  Log& log_;
  std::optional<ckpt::CheckpointReader> reader_;
  std::uint64_t bytes_ = 0;
  double seconds_ = 0.0;
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_RESTORE_HPP_

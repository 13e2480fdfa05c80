// ckpt/directory.hpp — a directory of checkpoints: step_00001000/, step_00002000/, and
// `latest`, a symbolic link to the newest.
//
// Whatever bears a final name is whole: checkpoints are written under names that begin
// with a dot and renamed, and removed by renaming them away first.
#ifndef TRIREME_CKPT_DIRECTORY_HPP_
#define TRIREME_CKPT_DIRECTORY_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "ckpt/reader.hpp"
#include "ckpt/shard_writer.hpp"
#include "ckpt/verify.hpp"

namespace trireme::ckpt {

inline constexpr const char* kLatestName = "latest";

// One checkpoint, rather than a directory of several. `canonical`: links resolved.
bool is_checkpoint(const Path& canonical);

struct Listed {
  Path path;
  std::int64_t step = 0;
  std::int64_t generation = -1;  // -1: its manifest cannot be read
};
// The checkpoints of a directory, newest first; unreadable ones come before all others,
// so that whoever looks for a whole one learns of them.
std::vector<Listed> list_checkpoints(const Path& directory);

// " To go on from the one before it: --resume ..." for who cannot use this one; empty
// where there is none.
std::string advice_beside(const Path& checkpoint);

struct Search {
  std::optional<Path> found;         // the newest that verifies
  std::optional<Manifest> manifest;  // of that
  std::vector<std::string> skipped;  // newer ones: which, and what is wrong with each
  std::vector<Path> older;           // not looked at, newest first
};
// path: a run directory, its `checkpoints`, one step_* directory or `latest`. A directory
// named by itself is the only candidate. InputError where `path` does not exist.
// io::ReadError where the newest cannot be read: that is no reason to take another one.
Search find_newest(const Path& path, Depth depth = Depth::checksums);
// Finds as find_newest() does, for who needs one: InputError where there is none, with
// the reasons.
Search find_whole(const Path& path, Depth depth = Depth::checksums);
// The path of what find_whole() finds.
Path require_newest(const Path& path, Depth depth = Depth::checksums);

// Opens what find_whole() finds, for who reads weights: the log is told of newer ones
// that cannot be used. A checkpoint named by itself is checked no further than its sizes:
// reading checks each block.
CheckpointReader open_newest(const Path& path, Log& log);

struct Retention {
  int keep = 3;                 // the newest; 0: all
  std::int64_t keep_every = 0;  // and those of every so many steps; 0: none
  std::optional<std::int64_t> keep_best = {};  // and this step
};
// Removes what the rule does not keep. Only checkpoints whose files are all there count
// as kept; what `latest` names is never removed. One that cannot be removed does not keep
// the others.
struct Purged {
  std::vector<Path> removed;
  std::vector<std::string> problems;  // which could not be removed, and why
};
Purged purge(const Path& directory, const Retention& retention,
             const FaultHook& hook = {});

// Removes what killed runs left half written; not `but`, which is being written.
void remove_stale(const Path& directory, const Path& but = {});

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_DIRECTORY_HPP_

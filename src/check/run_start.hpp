// check/run_start.hpp — whether to begin, go on or do nothing (run.dir, --resume).
//
//   never   an existing run is refused
//   auto    begins where there is nothing, goes on from the newest checkpoint that
//           verifies, does nothing on a finished run
//   CKPT    goes on from that one
#ifndef TRIREME_CHECK_RUN_START_HPP_
#define TRIREME_CHECK_RUN_START_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.hpp"
#include "io/files.hpp"

namespace trireme::check {

struct RunOptions {
  io::Path path;                 // run.dir
  io::Path checkpoints;          // checkpoint.dir
  std::string resume = "never";  // never, auto, or a checkpoint's path
  std::int64_t steps = 0;        // run.steps
};

enum class StartKind { afresh, resume, finished };

struct RunStart {
  StartKind kind = StartKind::afresh;
  // `checkpoint` is the one to go on from, or the last one of a finished run: its files
  // are all there, and have their sizes. `older` are those to fall back to where it turns
  // out to be damaged: newest first, not looked at.
  io::Path checkpoint;
  std::optional<ckpt::Manifest> manifest;  // of that, where it was read: on rank 0
  std::vector<io::Path> older;
  std::int64_t step = 0;
  // For the log; who of the start before did not end cleanly is among them.
  std::vector<std::string> notes;
  // Checkpoints of the run that lie beyond the one it was told to go on from. They would
  // be found as the newest by the next start, so that they are moved out of sight.
  std::vector<io::Path> superseded;
};

// Changes nothing on disk. InputError for an existing run (never), a checkpoint that is
// missing or damaged, or a run whose checkpoints are all damaged. It holds only while no
// other process writes to the directories: RunDirectory asks when it has locked them.
RunStart decide_start(const RunOptions& options);

// Whether the directory has the deck of a run and records of it, wherever its checkpoints
// are. What cannot be seen is not there.
bool has_run_records(const io::Path& directory);

}  // namespace trireme::check

#endif  // TRIREME_CHECK_RUN_START_HPP_

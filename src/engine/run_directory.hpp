// engine/run_directory.hpp — the directory of a run: whether to begin, go on or do
// nothing (run.dir, --resume), and the files that say what was run and where.
//
//   never   an existing run is refused
//   auto    begins where there is nothing, goes on from the newest checkpoint that
//           verifies, does nothing on a finished run
//   CKPT    goes on from that one
// Rank 0 looks and writes; every rank gets the answer, or the error.
#ifndef TRIREME_ENGINE_RUN_DIRECTORY_HPP_
#define TRIREME_ENGINE_RUN_DIRECTORY_HPP_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::engine {

struct RunOptions {
  io::Path path;                 // run.dir
  io::Path checkpoints;          // checkpoint.dir
  std::string resume = "never";  // never, auto, or a checkpoint's path
  std::int64_t steps = 0;        // run.steps
};

enum class StartKind { afresh, resume, finished };

struct RunStart {
  StartKind kind = StartKind::afresh;
  // To go on from, or the last one of a finished run: its files are all there, and have
  // their sizes. Those to fall back to where it turns out to be damaged: newest first,
  // not looked at.
  io::Path checkpoint;
  std::vector<io::Path> older;
  std::int64_t step = 0;
  // For the log; who of the start before did not end cleanly is among them.
  std::vector<std::string> notes;
  // Checkpoints of the run that lie beyond the one it was told to go on from. They would
  // be found as the newest by the next start, so that they are moved out of sight.
  std::vector<io::Path> superseded;
};

// Collective; changes nothing on disk. InputError for an existing run (never), a
// checkpoint that is missing or damaged, or a run whose checkpoints are all damaged.
RunStart decide_start(comm::Communicator& world, const RunOptions& options);

// What environment.json holds. Empty fields are left out.
struct RunEnvironment {
  std::vector<std::pair<std::string, std::string>> versions;  // {"trireme", "0.1.0"} ...
  std::string compiler, build_type, flags;
  std::string grid;  // "tensor 2 x context 1 x data 4 x pipeline 1"
  int ranks = 1;
  int threads = 1;                   // per rank
  std::vector<std::string> hosts;    // one entry each
  std::vector<std::string> devices;  // per rank; empty on CPUs
  std::vector<std::string> places;   // per rank: "node1: cores 0-3"
  std::string started;               // iso_time() of base/wall_time.hpp
  std::string command_line, job;
};

class RunDirectory {
 public:
  // Collective. Makes the directory and that of the checkpoints, with a link
  // `checkpoints` to those that lie elsewhere; moves superseded checkpoints to
  // `set_aside` below theirs; and locks both against a second process (until destruction;
  // not where the file system knows no locks). InputError where one cannot write there,
  // or another process does.
  RunDirectory(comm::Communicator& world, const RunOptions& options,
               const RunStart& start);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const io::Path& path() const { return path_; }
  io::Path file(const std::string& name) const { return path_ / name; }

  // Collective. A deck.yaml of another text is kept as deck.1.yaml, deck.2.yaml, ...
  void write_deck(std::string_view resolved_deck);
  // Collective. What an earlier start wrote goes to `earlier_starts`.
  void write_environment(const RunEnvironment& environment);

 private:
  void lock(const io::Path& directory, std::string_view does, std::string_view advice);
  void unlock();
  void link_checkpoints(const io::Path& checkpoints) const;

  comm::Communicator& world_;
  io::Path path_;
  std::vector<int> locks_;  // open files
};

}  // namespace trireme::engine

#endif  // TRIREME_ENGINE_RUN_DIRECTORY_HPP_

// run/run_directory.hpp — the directory of a run, held against other processes: what
// to do there is decided under the lock (run_start.hpp); and the files that say what was
// run and where. Rank 0 looks and writes; every rank gets the answer, or the error.
#ifndef TRIREME_RUN_RUN_DIRECTORY_HPP_
#define TRIREME_RUN_RUN_DIRECTORY_HPP_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/run_start.hpp"
#include "ckpt/manifest.hpp"
#include "comm/communicator.hpp"
#include "io/files.hpp"
#include "io/held_directory.hpp"

namespace trireme::run {

class RunDirectory {
 public:
  // Collective. Holds the directory and that of the checkpoints against a second process,
  // until destruction (not where the file system knows no locks), and then decides what
  // to do: nobody changes what the decision goes by. Directories that are not there are
  // made, and go again with this object unless begin() was called: a start that is
  // refused leaves nothing. InputError where one cannot write there, another process
  // holds one, or the start is not to be (decide_start).
  RunDirectory(comm::Communicator& world, const check::RunOptions& options);
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Where the run begins. The notes, superseded checkpoints and manifest are on rank 0
  // only.
  const check::RunStart& start() const { return start_; }
  // What RunStart has of a manifest, once: it may be large.
  std::optional<ckpt::Manifest> take_manifest() {
    return std::exchange(start_.manifest, {});
  }
  // Collective. The start is to be: removes what killed starts have left, links
  // `checkpoints` to those that lie elsewhere, and moves superseded ones to `set_aside`
  // below theirs. InputError where not all ranks see the directories.
  void begin();

  // Rank 0, any thread, before anything is written there; nothing to do on others. Error
  // where the directories are no longer those that are held: moved, removed, or locked
  // anew.
  void require_held() const;

  const io::Path& path() const { return path_; }
  io::Path file(const std::string& name) const { return path_ / name; }

  // Collective. A deck.yaml of another text is kept as deck.1.yaml, deck.2.yaml, ...
  void write_deck(std::string_view resolved_deck);
  // Collective. environment.json becomes `json`; what an earlier start wrote goes to
  // `earlier_starts` in it.
  void write_environment(nlohmann::ordered_json json);
  // Collective. gemm_table.json becomes this text.
  void write_gemm_table(std::string_view text);

 private:
  check::RunStart hold_and_decide();
  void link_checkpoints() const;

  comm::Communicator& world_;
  check::RunOptions options_;
  io::Path path_;
  // What rank 0 holds: the run directory, and that of the checkpoints where it lies
  // elsewhere. The inner one goes first.
  std::optional<io::HeldDirectory> held_, held_checkpoints_;
  check::RunStart start_;
};

}  // namespace trireme::run

#endif  // TRIREME_RUN_RUN_DIRECTORY_HPP_

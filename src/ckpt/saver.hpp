// ckpt/saver.hpp — the saves of a run, each beside the training that goes on.
//
// A save begins with a copy of the state to the host: beside the caller's next passes on
// a GPU, while the caller waits on a host. The rest is done by a thread of each rank, in
// phases: shared files are laid out, blocks are written and synced, rank 0 publishes.
// From phase to phase all ranks meet in advance(), which the training loop calls once a
// step: threads make no MPI call.
#ifndef TRIREME_CKPT_SAVER_HPP_
#define TRIREME_CKPT_SAVER_HPP_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/event.hpp"
#include "base/types.hpp"
#include "ckpt/save.hpp"
#include "comm/communicator.hpp"
#include "config/deck.hpp"

namespace trireme::ckpt {

struct SaverOptions {
  Path directory;                            // the run's `checkpoints`
  index_t writers = config::kWriterPerRank;  // as checkpoint.writers
  bool in_background = true;                 // else parts are written from where they are
  // Rank 0, any thread: what has to be on the disk before a checkpoint is published.
  std::function<void()> before_publish = {};
  FaultHook hook = {};
};

// What became of a save; the same on every rank, but for its own time.
struct SaveReport {
  std::int64_t step = 0;
  std::string error = {};     // empty: it is published
  Path path = {};             // of the checkpoint
  std::uint64_t bytes = 0;    // of all its files
  std::string warning = {};   // as Saved::warning
  double busy_seconds = 0.0;  // from copy to publication, without waits for advance()
  double own_seconds = 0.0;   // of these, what this rank itself took
};

class Saver {
 public:
  // Collective.
  Saver(comm::Communicator& world, const std::string& host, const SaverOptions& options);
  // Waits for this rank's thread, unless that was given up. What was under way stays
  // unpublished.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Memory for copies of such parts, and a queue for them beside `exec`, so that no save
  // has to ask for it.
  void reserve(const Exec& exec, const std::vector<TensorPart>& parts);
  bool is_prepared() const { return snapshot_.is_prepared(); }
  std::size_t staging_bytes() const { return snapshot_.bytes(); }

  // Collective; none may be under way. In the background, parts may change on return, but
  // for those on a device: who writes them is held up by copied() before. In the
  // foreground they may not before the save has ended.
  void begin(const Exec& exec, const std::vector<TensorPart>& parts,
             const TrainingState& state, const Retention& retention);
  // In the queue that copies the state for the newest save in the background.
  const Event& copied() const { return snapshot_.taken(); }
  bool is_under_way() const { return phase_ != Phase::idle; }
  // Collective, one message long; nothing to do where none is under way. The report once
  // the save has ended.
  std::optional<SaveReport> advance();
  // Collective: advances to the end of the save that is under way. Error that names the
  // ranks where for so many seconds no block was finished (a file system that hangs); 0:
  // waits for ever.
  SaveReport finish(double timeout = 0.0);
  // finish() has given up: a thread may never end, and the process should.
  bool has_given_up() const { return has_given_up_; }

 private:
  enum class Phase { idle, laying_out, writing, publishing };

  std::string make_staging();
  template <class Work>
  void start(Phase phase, Work&& work);
  void write();
  void start_writing();
  void start_publishing(const std::vector<std::string>& shards);
  SaveReport end(std::string error);
  // What went wrong on any rank; empty where none failed.
  std::string failures();
  void share_layout();
  [[noreturn]] void give_up(double timeout);

  comm::Communicator& world_;
  SaverOptions options_;
  std::shared_ptr<comm::Communicator> group_;  // shares a file; null: each rank has one
  int writer_ = 0;                             // number of this rank's file

  // What follows belongs to the save under way.
  Phase phase_ = Phase::idle;
  Snapshot snapshot_;
  std::optional<Exec> exec_;
  Event launched_;  // behind what makes the state that is to be saved
  std::vector<TensorPart> parts_;
  TrainingState state_;
  Retention retention_;
  Staging staging_;
  std::vector<Manifest>
      outlines_;    // of the ranks of the file, where this rank lays it out
  Manifest shard_;  // this rank's; all of the file's between phases
  Saved saved_;
  SaveReport report_;

  bool has_given_up_ = false;
  std::thread thread_;
  std::atomic<bool> is_done_{true};
  std::atomic<std::int64_t> progress_{0};  // phases and blocks that were begun
  std::string failure_;                    // of the thread; read once it is done
  double phase_seconds_ = 0.0;
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_SAVER_HPP_

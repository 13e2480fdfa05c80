// ckpt/save.hpp — publishing a checkpoint: all ranks write, rank 0 names it.
//
//   .step_00001000.tmp-*/   shards by all ranks, synced; index.h5; manifest.json; synced
//   -> step_00001000/       by rename, directory synced
//   -> latest               relative link, swapped by rename
//   -> purge                of what the retention rule does not keep
// Killed at any instant, the checkpoint published last is whole, and find_newest() finds
// it. When any rank fails, all throw the same Error and nothing is left under a final
// name. Old checkpoints that cannot be removed are no failure: Saved::warning.
#ifndef TRIREME_CKPT_SAVE_HPP_
#define TRIREME_CKPT_SAVE_HPP_

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "ckpt/directory.hpp"
#include "ckpt/shard_writer.hpp"
#include "ckpt/training_state.hpp"
#include "comm/communicator.hpp"

namespace trireme::ckpt {

struct SaveOptions {
  Retention retention;
  FaultHook hook = {};
};

struct Saved {
  Path path;
  std::uint64_t bytes = 0;  // of all files
  // "" or, on rank 0, what went wrong although the checkpoint is saved: old ones that
  // could not be removed. The caller tells the user.
  std::string warning = {};
};

// All steps at once; every rank calls it. `directory` is the run's `checkpoints`, and
// made where it is not there. A checkpoint of the same step is replaced. Runs have a
// Saver.
Saved save_checkpoint(const Exec& exec, comm::Communicator& comm, const Path& directory,
                      const TrainingState& state, const std::vector<TensorPart>& parts,
                      const SaveOptions& options = {});

// The steps one by one: begin (rank 0, others wait for the name; the save is given its
// identity), the shards (each rank, any thread), publish (rank 0, with every rank's
// manifest). Error where the directory is not there: one that was removed under a run is
// not made anew.
Staging begin_save(const Path& directory, const TrainingState& state,
                   const FaultHook& hook = {});
Saved publish(const Path& directory, const Staging& staging, const TrainingState& state,
              const std::vector<Manifest>& shards, const SaveOptions& options = {});
// Removes what begin_save made; for who will not publish.
void abandon(const Path& path);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_SAVE_HPP_

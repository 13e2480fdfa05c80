// ckpt/training_state.hpp — what a training run is besides its tensors, and the file that
// holds it: index.h5, which also shows each tensor whole, as a virtual dataset over the
// shards (h5py.File("index.h5")["model/layers/0/attention/qkv/weight"]).
#ifndef TRIREME_CKPT_TRAINING_STATE_HPP_
#define TRIREME_CKPT_TRAINING_STATE_HPP_

#include <cstdint>
#include <map>
#include <string>

#include "base/fault.hpp"
#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

struct TrainingState {
  // Drawn when the run began (random_id()); empty: a run of its own, with the first save.
  std::string run;
  // How far the run is after the step.
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  // What random numbers and sample order are keyed by.
  std::uint64_t seed = 0;
  std::uint64_t data_seed = 0;
  // Dynamic loss scale (fp16) and the finite steps since it last changed.
  double loss_scale = 1.0;
  std::int64_t loss_scale_steps = 0;
  // Updates left out because a gradient was not finite.
  std::int64_t skipped_steps = 0;
  // Best validation loss so far and its step; step -1: none yet.
  double best_loss = 0.0;
  std::int64_t best_step = -1;

  std::string deck;     // the resolved deck, YAML
  std::string version;  // of the program that wrote it: known once it is read
  // Ranks along each axis of the grid that wrote it, for the record: any grid reads it.
  std::map<std::string, std::int64_t> grid;
  // The tokenizer's own files, name -> content, and attributes (kind, end_of_document
  // ...).
  std::map<std::string, std::string> tokenizer;
  std::map<std::string, std::string> tokenizer_attributes;
  // Whatever else a run wants to find again (schedule, data position of blends ...).
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;

  bool operator==(const TrainingState&) const = default;
};

// Writes index.h5 for the tensors and blocks of the manifest, with its identity. Not
// synced.
// `fault` is what its writes shall suffer.
void write_index(const Path& path, const TrainingState& state, const Manifest& manifest,
                 Fault fault = Fault::none);
// All of it as bytes that tell other ranks; and back.
std::string bytes_of(const TrainingState& state);
TrainingState state_from_bytes(const std::string& bytes);
// The state in an index.h5 whose checksum the caller has verified. InputError where it is
// of another save than the manifest, shows other tensors or other blocks of them, leads
// out of its directory, or holds a state that no run can have.
TrainingState read_index(const Path& directory, const Manifest& manifest);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_TRAINING_STATE_HPP_

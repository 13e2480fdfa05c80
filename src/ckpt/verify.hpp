// ckpt/verify.hpp — what is wrong with a checkpoint.
#ifndef TRIREME_CKPT_VERIFY_HPP_
#define TRIREME_CKPT_VERIFY_HPP_

#include <optional>
#include <string>
#include <vector>

#include "ckpt/training_state.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// Each with what the one before finds.
//   sizes      a file that is missing, cut, or of another save: by the manifest and a few
//              bytes of each shard, without HDF5
//   index      an index.h5 that is damaged or does not agree with the manifest
//   checksums  any flipped bit, numbers that are not finite, shards that show HDF5's
//   users
//              other places than the manifest: reads everything
enum class Depth { sizes, index, checksums };

struct Findings {
  std::optional<Manifest> manifest = {};    // where it could be read
  std::optional<TrainingState> state = {};  // from Depth::index on, where it could
  // One sentence each, with the file, the block, what was expected and what was found;
  // empty for a whole checkpoint.
  std::vector<std::string> problems = {};
  std::vector<std::string> unreadable = {};  // those of them that say nothing of damage
};
Findings examine(const Path& directory, Depth depth);
// The problems alone that examine() finds.
std::vector<std::string> problems_of(const Path& directory, Depth depth);
// The problems of one file of a manifest that was read; `blocks` are the numbers of its
// blocks. UnreadableError and ReadError, which are not of what it holds, are thrown.
std::vector<std::string> problems_of_file(const Path& directory, const Manifest& manifest,
                                          std::size_t file,
                                          const std::vector<std::size_t>& blocks,
                                          Depth depth);

// Whether a file is the one that the manifest means, by its stamp: empty, or what it is
// of. Nothing is asked of files without one.
std::string stamp_problem(const io::FileReader& reader, const Manifest& manifest,
                          std::size_t file, const std::vector<std::size_t>& blocks);

// "'shard_00003.h5' is damaged: rows 0 to 511 of 'model/...' (..." for who reads a block.
std::string damaged_chunk(const Path& file, const Manifest& manifest,
                          const BlockEntry& block, std::size_t chunk,
                          std::uint64_t found);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_VERIFY_HPP_

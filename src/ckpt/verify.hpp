// ckpt/verify.hpp — what is wrong with a checkpoint, without any HDF5 call.
#ifndef TRIREME_CKPT_VERIFY_HPP_
#define TRIREME_CKPT_VERIFY_HPP_

#include <string>
#include <vector>

#include "ckpt/manifest.hpp"

namespace trireme::ckpt {

// The lightest check that finds a file that is missing or cut, or one that also finds any
// flipped bit (reads everything).
enum class Depth { sizes, checksums };

// One sentence each, with the file, the block, what was expected and what was found;
// empty for a whole checkpoint.
std::vector<std::string> problems_of(const Path& directory, Depth depth);
// The same of one file of a manifest that was read; `blocks` are the numbers of its
// blocks.
std::vector<std::string> problems_of_file(const Path& directory, const Manifest& manifest,
                                          std::size_t file,
                                          const std::vector<std::size_t>& blocks,
                                          Depth depth);

// "'shard_00003.h5' is damaged: rows 0 to 511 of 'model/...' (..." for who reads a block.
std::string damaged_chunk(const Path& file, const Manifest& manifest,
                          const BlockEntry& block, std::size_t chunk,
                          std::uint64_t found);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_VERIFY_HPP_

// ckpt/manifest.hpp — what a checkpoint consists of: every file with size and checksum,
// every tensor, and every block of a tensor with its place in a file.
//
// manifest.json is the last file written. Its first line holds the checksum of all that
// follows, so that it vouches for the other files and for itself. Readers go by it alone:
// blocks are read at their offsets without HDF5.
#ifndef TRIREME_CKPT_MANIFEST_HPP_
#define TRIREME_CKPT_MANIFEST_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "ckpt/region.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

using io::Path;

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "index.h5";
inline constexpr int kFormatVersion = 1;

// Prefixes of tensor names.
inline constexpr const char* kModelGroup = "model/";
inline constexpr const char* kExpAvgGroup = "optimizer/exp_avg/";
inline constexpr const char* kExpAvgSqGroup = "optimizer/exp_avg_sq/";

struct FileEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

struct TensorEntry {
  std::string name;  // "model/layers/0/attention/qkv/weight"
  DType dtype = DType::float32;
  Shape shape;  // global, unpadded
};

// A rectangle of a tensor, row-major and without gaps in a file.
struct BlockEntry {
  std::size_t tensor = 0;  // index into tensors
  std::size_t file = 0;    // index into files
  std::string dataset;     // its HDF5 name in that file
  std::uint64_t offset = 0;
  std::uint64_t checksum = 0;
  Rectangle place;
};

struct Manifest {
  std::int64_t step = 0;
  // Counts the checkpoints of a directory in the order they were published: the newest is
  // not the one of the highest step where a run was taken up again from an older one.
  std::int64_t generation = 0;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;
  std::vector<BlockEntry> blocks;

  bool has_optimizer_state() const;
  // Elements under model/.
  index_t parameter_count() const;
  // Of one tensor; throws InputError where there is none.
  std::size_t find(const std::string& tensor) const;

  // Adds another writer's part. Tensors that both have must agree.
  void merge(const Manifest& other);
  // Every tensor is covered, once; every block lies in its file and tensor. Throws
  // InputError.
  void check(const std::string& where) const;

  std::string to_text() const;
  // InputError where the checksum or the content is wrong; `where` names the file. May be
  // one writer's part: not check()ed.
  static Manifest from_text(const std::string& text, const std::string& where);
};

// Of a step directory, checked.
Manifest read_manifest(const Path& directory);
// InputError, with advice, for weights alone: no training can go on from them.
void require_optimizer_state(const Manifest& manifest, const Path& directory);
// Its generation alone, unchecked; -1 where it cannot be read.
std::int64_t peek_generation(const Path& directory);

// The lightest check that finds a file that is missing or cut, or one that also finds any
// flipped bit (reads everything).
enum class Depth { sizes, checksums };
// What is wrong, one sentence each with the file, what was expected and what was found;
// empty for a whole checkpoint.
std::vector<std::string> problems_of(const Path& directory, Depth depth);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_MANIFEST_HPP_

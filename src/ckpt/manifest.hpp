// ckpt/manifest.hpp — what a checkpoint consists of: every file with size and checksum,
// every tensor, and every block of a tensor with its place in a file.
//
// manifest.json is the last file written. Its first line holds the checksum of all that
// follows, so that it vouches for the other files and for itself: together, checksums of
// blocks and of what files hold besides them cover every byte. Readers go by it alone:
// blocks are read at their offsets without HDF5.
//
// A checksum that is right says that a file is as someone wrote it. That the parts belong
// together is asked besides: each names the save that it is of (identity.hpp), and a
// shard sums up where its blocks lie (its stamp, a text at a known place in it).
#ifndef TRIREME_CKPT_MANIFEST_HPP_
#define TRIREME_CKPT_MANIFEST_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "ckpt/chunks.hpp"
#include "ckpt/identity.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

using io::Path;

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "index.h5";
inline constexpr const char* kFormat = "trireme-checkpoint";
inline constexpr int kFormatVersion = 3;
// Read still: its parts have no identity, and only their steps can be compared.
inline constexpr int kOldFormatVersion = 2;
// The dataset of a shard that is its stamp, and its length.
inline constexpr const char* kStampName = "identity";
inline constexpr std::size_t kStampBytes = 128;

// Prefixes of tensor names.
inline constexpr const char* kModelGroup = "model/";
inline constexpr const char* kExpAvgGroup = "optimizer/exp_avg/";
inline constexpr const char* kExpAvgSqGroup = "optimizer/exp_avg_sq/";

struct FileEntry {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // of its bytes that are in no block
  // Where a shard's stamp begins; none in index.h5, and in old formats.
  std::optional<std::uint64_t> stamp = {};

  bool operator==(const FileEntry&) const = default;
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
  std::vector<std::uint64_t> checksums;  // of its chunks
  Rectangle place;
};

struct Manifest {
  int format = kFormatVersion;
  std::string run, save;  // as Identity has them; empty in old formats
  // Progress after the step, as index.h5 has it, too.
  std::int64_t step = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  // Counts the checkpoints of a directory in the order they were published: the newest is
  // not the one of the highest step where a run was taken up again from an older one.
  std::int64_t generation = 0;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;
  std::vector<BlockEntry> blocks;

  Identity identity() const { return {run, save, step}; }
  void set_identity(const Identity& identity);
  bool is_old() const { return format < kFormatVersion; }
  bool has_optimizer_state() const;
  // Elements under model/.
  index_t parameter_count() const;

  // Where a block lies in its file.
  ByteRange bytes_of(const BlockEntry& block) const;
  // The text that says, in a shard, what it is of and where these blocks, which are all
  // of it, lie.
  std::string stamp_of(const std::vector<std::size_t>& blocks) const;
  // Numbers of the blocks of each file, and of each tensor.
  std::vector<std::vector<std::size_t>> blocks_by_file() const;
  std::vector<std::vector<std::size_t>> blocks_by_tensor() const;
  // The blocks [first, first + count) alone, with their tensors and files.
  Manifest part(std::size_t first, std::size_t count) const;

  // Adds other writers' parts. Tensors and files that several have must agree.
  void merge(const std::vector<Manifest>& others);
  // All numbers are possible; every element of every tensor is in one block, every block
  // in its file, apart from the others; no name stands twice. Throws InputError.
  void check(const std::string& where) const;

  std::string to_text() const;
  // InputError where the checksum or the content is wrong; `where` names the file. May be
  // one writer's part: not check()ed.
  static Manifest from_text(const std::string& text, const std::string& where);
};

// "'x/manifest.json' is damaged: ...; take another checkpoint", of whatever is wrong in
// it.
InputError damaged_manifest(const std::string& where, const std::string& problem);
// The manifest of a step directory, checked; its step is the one in the directory's name.
Manifest read_manifest(const Path& directory);
// For people, where parts of an old format cannot be compared; empty else.
std::string format_note(const Manifest& manifest, const Path& directory);
// InputError, with advice, for weights alone: no training can go on from them.
void require_optimizer_state(const Manifest& manifest, const Path& directory);
// The generation alone of a directory's manifest, unchecked; -1 where it cannot be read.
std::int64_t peek_generation(const Path& directory);

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_MANIFEST_HPP_

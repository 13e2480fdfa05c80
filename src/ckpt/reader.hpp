// ckpt/reader.hpp — reading a checkpoint into any layout.
//
// Opening checks the manifest, the size of every file, the checksum of index.h5 (before
// HDF5 sees it) and that it is of the same save; of a shard that is asked when it is
// first read. Each chunk's checksum is checked as it is read, with plain file reads, and
// its numbers are looked at. A rank reads the chunks that its part touches and keeps what
// is its own.
#ifndef TRIREME_CKPT_READER_HPP_
#define TRIREME_CKPT_READER_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/exec.hpp"
#include "ckpt/training_state.hpp"
#include "comm/communicator.hpp"
#include "io/files.hpp"

namespace trireme::ckpt {

// What a rank wants of a tensor, and where it goes.
struct TensorTarget {
  std::string name;
  DType dtype = DType::float32;
  Shape global_shape;
  std::vector<Region> regions;
  std::byte* data = nullptr;
  bool on_host = false;
};

// exact: element types must agree (a restart is bitwise). floating: floating-point types
// are converted.
enum class Conversion { exact, floating };

class CheckpointReader {
 public:
  // One step_* directory, or `latest`; to choose among several see find_newest(). Whoever
  // has read the manifest already hands it over: a large one takes seconds to parse.
  explicit CheckpointReader(const Path& directory, std::optional<Manifest> manifest = {});
  // Collective: rank 0 opens it and tells the others, which look at no file until they
  // read their parts. The same error on all. The manifest is rank 0's.
  CheckpointReader(comm::Communicator& comm, const Path& directory,
                   std::optional<Manifest> manifest = {});

  const Path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const TrainingState& state() const { return state_; }

  bool has(const std::string& tensor) const { return numbers_.count(tensor) > 0; }
  // InputError where there is none.
  const TensorEntry& tensor(const std::string& name) const;
  // InputError with advice where there are weights only.
  void require_optimizer_state() const;

  // Elements outside the regions (padding) are left as they are. On return the data are
  // there. InputError: no such tensor, another shape or type, damage, numbers that are
  // not finite.
  void read(const Exec& exec, const TensorTarget& target,
            Conversion conversion = Conversion::exact) const;
  // A whole tensor, converted to float: for tools.
  std::vector<float> read_whole(const std::string& name) const;
  // Read from files so far.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  void open(std::optional<Manifest> manifest);
  void number_tensors();
  std::size_t number_of(const std::string& tensor) const;
  const io::FileReader& file(std::size_t number) const;

  Path path_;
  Manifest manifest_;
  TrainingState state_;
  std::unordered_map<std::string, std::size_t> numbers_;  // of tensors
  std::vector<std::vector<std::size_t>> blocks_;          // of each tensor
  std::vector<std::vector<std::size_t>> blocks_of_files_;
  mutable std::unordered_map<std::size_t, io::FileReader> open_files_;
  mutable std::uint64_t bytes_read_ = 0;
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_READER_HPP_

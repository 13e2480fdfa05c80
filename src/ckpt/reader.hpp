// ckpt/reader.hpp — reading a checkpoint into any layout.
//
// Opening checks the manifest, the size of every file and the checksum of index.h5
// (before HDF5 sees it); each block's checksum is checked as it is read, with plain file
// reads. A rank reads the blocks that its part touches and keeps what is its own.
#ifndef TRIREME_CKPT_READER_HPP_
#define TRIREME_CKPT_READER_HPP_

#include <string>
#include <vector>

#include "base/exec.hpp"
#include "ckpt/training_state.hpp"

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
  // One step_* directory, or `latest`; to choose among several see find_newest().
  explicit CheckpointReader(const Path& directory);

  const Path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const TrainingState& state() const { return state_; }

  bool has(const std::string& tensor) const;
  // InputError with advice where there are weights only.
  void require_optimizer_state() const;

  // Elements outside the regions (padding) are left as they are. On return the data are
  // there. InputError: no such tensor, another shape or type, damage.
  void read(const Exec& exec, const TensorTarget& target,
            Conversion conversion = Conversion::exact) const;
  // A whole tensor, converted to float: for tools.
  std::vector<float> read_whole(const std::string& tensor) const;

 private:
  Path path_;
  Manifest manifest_;
  TrainingState state_;
};

}  // namespace trireme::ckpt

#endif  // TRIREME_CKPT_READER_HPP_

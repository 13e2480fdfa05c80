// data/vector_file.hpp — vectors of texts in an HDF5 file, in the order of the texts:
// /embeddings (n, h) float32; /offsets (n) int64, where in its file a text begins;
// /tokens (n) int32, that were read of it. It comes into place whole or not at all.
#ifndef TRIREME_DATA_VECTOR_FILE_HPP_
#define TRIREME_DATA_VECTOR_FILE_HPP_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"

namespace trireme::data {

class VectorFile {
 public:
  VectorFile(const io::Path& path, index_t columns,
             const std::vector<std::int64_t>& offsets);

  // T as of io::H5Object.
  template <class T>
  void set(const std::string& name, const T& value) {
    file_.set_attribute<T>(name, value);
  }
  // Of texts from `first` on.
  void write(index_t first, const std::vector<float>& vectors,
             const std::vector<std::int32_t>& tokens);
  void commit();

 private:
  io::AtomicFile path_;
  io::H5File file_;
  std::optional<io::H5Dataset> vectors_, tokens_;
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_VECTOR_FILE_HPP_

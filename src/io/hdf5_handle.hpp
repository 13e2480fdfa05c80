// io/hdf5_handle.hpp — private to src/io: identifiers that close themselves, the lock
// around all HDF5 calls, and its error stack as text. Ids are plain integers, so that
// hdf5.h stays out of headers.
#ifndef TRIREME_IO_HDF5_HANDLE_HPP_
#define TRIREME_IO_HDF5_HANDLE_HPP_

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/types.hpp"
#include "io/hdf5.hpp"

namespace trireme::io {

// Held during every HDF5 call. Recursive: destructors run inside other calls.
class H5Lock {
 public:
  H5Lock();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

// A property list, data type, data space or attribute for the length of a scope.
class H5Scoped {
 public:
  using Close = int (*)(std::int64_t);
  // Throws where id < 0; the error says what was attempted on which object.
  H5Scoped(std::int64_t id, Close close, const std::string& attempt);
  ~H5Scoped();
  H5Scoped(H5Scoped&& other) noexcept;
  operator std::int64_t() const { return id_; }

 private:
  std::int64_t id_;
  Close close_;
};

struct H5Object::Handle {
  std::int64_t id = -1;
  H5Scoped::Close close;
  std::shared_ptr<Handle> owner;  // the file's, for its objects
  std::string file;
  bool writing = false;
  std::set<std::string> groups_seen;  // of a file: those known to be groups of its own

  Handle(std::int64_t id, H5Scoped::Close close, std::shared_ptr<Handle> owner,
         std::string file, bool writing);
  ~Handle();
  Handle(const Handle&) = delete;

  // The id, or an Error where the file was closed.
  std::int64_t use() const;
};

// Throws Error with `attempt` and HDF5's error stack where status < 0.
void h5_check(std::int64_t status, const std::string& attempt);

// The type of elements, in the file and in memory. Throws, as the next two.
H5Scoped h5_type(DType dtype);
H5Scoped h5_space(const Shape& shape);
// InputError for a type that no DType describes; `marked_bf16` where the attribute says
// so.
DType h5_dtype(std::int64_t type, bool marked_bf16, const std::string& where);

}  // namespace trireme::io

#endif  // TRIREME_IO_HDF5_HANDLE_HPP_

// io/hdf5.hpp — HDF5 files, groups, datasets and attributes as C++ objects.
//
// HDF5 here is not thread-safe: every call of it, in all of Trireme, is made in this
// module under one process-wide lock. Errors carry the file, the object and HDF5's own
// error stack. Datasets are contiguous and allocated when created, so that offset() tells
// where their bytes lie and readers may map them, writers may fill them with plain
// writes. bf16 is stored as 16-bit unsigned integers with an attribute dtype =
// "bfloat16". Nothing stored depends on the time of day.
//
// A file is what it holds itself: soft and external links, and datasets whose data are in
// other files, are refused by an InputError wherever they are met; our writers make none,
// and no checksum would cover what is behind one. Virtual datasets say where they lead.
#ifndef TRIREME_IO_HDF5_HPP_
#define TRIREME_IO_HDF5_HPP_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.hpp"
#include "io/files.hpp"

namespace trireme::io {

// What files, groups and datasets share: a handle, a name, attributes. Copies share the
// handle; the file is closed when the last object in it is gone.
class H5Object {
 public:
  const std::string& file() const;                   // its path on disk
  const std::string& name() const { return name_; }  // its path in the file, "/tokens"

  bool has_attribute(const std::string& name) const;
  std::vector<std::string> attribute_names() const;
  // T: std::int64_t, std::uint64_t, double, std::string or Shape.
  // Setting replaces. Reading a missing attribute, or one of another kind, is an
  // InputError.
  template <class T>
  void set_attribute(const std::string& name, const T& value);
  template <class T>
  T attribute(const std::string& name) const;
  // Any attribute for people to read; long ones are cut.
  std::string attribute_text(const std::string& name) const;

 protected:
  struct Handle;
  H5Object(std::shared_ptr<Handle> handle, std::string name);
  // The handle of an object of this file that was just opened; throws where it was not.
  std::shared_ptr<Handle> opened(std::int64_t id, int (*close)(std::int64_t),
                                 const std::string& name) const;

  std::shared_ptr<Handle> handle_;
  std::string name_;
};

// A rectangle of a virtual dataset, and the dataset (of exactly that shape) in another
// file that holds it. `file` is relative to the directory of the file with the virtual
// dataset.
struct VirtualPiece {
  Shape start;
  Shape extent;
  std::string file;
  std::string dataset;

  bool operator==(const VirtualPiece&) const = default;
};

class H5Dataset : public H5Object {
 public:
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::uint64_t bytes() const;
  bool is_virtual() const;
  // The pieces of a virtual dataset, as they were given to make_virtual_dataset().
  // InputError where one is no rectangle, or shows another part of its source than all of
  // it.
  std::vector<VirtualPiece> pieces() const;
  // Where its bytes begin in the file; none unless contiguous, allocated and in the byte
  // order of this machine.
  std::optional<std::uint64_t> offset() const;

  // Rows [first, first + rows) of the outermost dimension (a scalar is one row), elements
  // of the dataset's own type; `bytes` is the size of the buffer and must be theirs.
  void write_rows(index_t first, index_t rows, const void* data, std::size_t bytes);
  void read_rows(index_t first, index_t rows, void* data, std::size_t bytes) const;

  // The whole dataset; T must be its element type.
  template <class T>
  std::vector<T> read() const;
  template <class T>
  void write(const std::vector<T>& values);

 private:
  friend class H5Group;
  H5Dataset(std::shared_ptr<Handle> handle, std::string name);
  void check_type(DType type) const;

  Shape shape_;
  DType dtype_ = DType::uint8;
};

// What a group holds, by its path relative to the group.
struct H5Entry {
  enum class Kind { group, dataset, link };  // soft or external: leads elsewhere
  std::string path;
  Kind kind = Kind::dataset;
};

class H5Group : public H5Object {
 public:
  // All names are paths relative to the group ("layers/0/weight").
  bool has(const std::string& path) const;
  bool is_group(const std::string& path) const;
  std::vector<std::string> children() const;  // sorted
  // All that is below it, sorted; links are listed and not followed. InputError where
  // groups are nested too deep.
  std::vector<H5Entry> tree() const;

  H5Group group(const std::string& path) const;  // InputError where there is none
  H5Group make_group(const std::string& path);   // with parents; opens an existing one
  H5Dataset dataset(const std::string& path) const;  // InputError where there is none
  H5Dataset make_dataset(const std::string& path, DType dtype, const Shape& shape);
  // Shows pieces of other files as one tensor; what no piece covers, and pieces whose
  // file is missing, read as NaN (integers: all ones).
  H5Dataset make_virtual_dataset(const std::string& path, DType dtype, const Shape& shape,
                                 const std::vector<VirtualPiece>& pieces);
  // A file inside the file: one-dimensional uint8. InputError for virtual ones.
  void write_bytes(const std::string& path, std::string_view bytes);
  std::string read_bytes(const std::string& path) const;
  // A scalar UTF-8 string of any length (attributes end at 64 KiB).
  void write_text(const std::string& path, std::string_view text);
  std::string read_text(const std::string& path) const;

 protected:
  using H5Object::H5Object;

 private:
  // Makes it and its parents where they are missing. A checkpoint has thousands of
  // datasets in few groups, so that each is looked at once.
  void ensure_group(const std::string& path);
  H5Dataset open_dataset(const std::string& path) const;  // that is known to be one
  H5Dataset create(const std::string& path, DType dtype, std::int64_t space,
                   std::int64_t creation, const std::string& attempt);
};

class H5File : public H5Group {
 public:
  enum class Mode { read, write, create };  // create: where nothing has this name
  H5File(const Path& path, Mode mode);

  static H5File create(const Path& path) { return {path, Mode::create}; }
  // InputError: missing, directory, not HDF5, truncated.
  static H5File open(const Path& path) { return {path, Mode::read}; }
  static H5File open_for_writing(const Path& path) { return {path, Mode::write}; }

  // What writes shall suffer from now on; only of a file that is written.
  void fail_writes(Fault fault);

  // Everything written and closed, with errors reported; objects of the file are unusable
  // afterwards. The destructor closes too, but has no way to report.
  void close();
};

// Checks, without any HDF5 call, that the file begins with an HDF5 superblock and is as
// long as that superblock says. A damaged file can crash the library, so ask before
// opening.
struct H5FileCheck {
  bool is_hdf5 = false;              // has the signature
  std::uint64_t bytes = 0;           // size on disk
  std::uint64_t expected_bytes = 0;  // end of file as the superblock has it
  std::string problem;               // empty when all is well
};
H5FileCheck check_hdf5(const Path& path, std::string_view role = "HDF5 file");

// "1.10.8", of the library in use.
std::string library_version();

}  // namespace trireme::io

#endif  // TRIREME_IO_HDF5_HPP_

// io/files.hpp — plain files with every error reported: what was attempted, on which
// path, why it failed, and for a full disk how much is free.
//
// What the user named and we cannot read is an InputError, but for a ReadError; what we
// cannot write is an Error.
#ifndef TRIREME_IO_FILES_HPP_
#define TRIREME_IO_FILES_HPP_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/fault.hpp"

namespace trireme::io {

using Path = std::filesystem::path;

// The system failed to read what may well be whole: a device or network file system, or a
// limit of the process. What may pass has been waited for.
class ReadError : public Error {
 public:
  using Error::Error;
};
// The system does not let us read it (permissions, a loop of links): what it holds is not
// known, and trying again does not help.
class UnreadableError : public InputError {
 public:
  using InputError::InputError;
};

// The whole file. InputError when it is missing, a directory or unreadable; `role` names
// it in the message ("deck", "tokenizer file").
std::string read_file(const Path& path, std::string_view role = "file");
// Bytes of a regular file; InputError as above.
std::uint64_t file_size(const Path& path, std::string_view role = "file");
// A device, a pipe, or a name of an open one (/dev/stdout), which nothing can be renamed
// to.
bool is_stream(const Path& path);
// All or nothing: written beside it under a temporary name, synced and renamed. Streams
// are written to.
void write_file(const Path& path, std::string_view content);
// Makes a directory and its parents, where they are not there. Error when one cannot be
// made.
void create_directories(const Path& path);
// Makes a new directory; Error where there is anything of this name, or not the directory
// above.
void create_directory(const Path& path);
// InputError where anything has this name, a link to nowhere included.
void require_absent(const Path& path);
// The nearest directory at or above `path` that exists.
Path existing_ancestor(Path path);
// Bytes an unprivileged user may still write where `path` is (or would be).
std::uint64_t free_bytes(const Path& path);
// "cannot write 'x': No space left on device (errno 28); 12.0 MiB free there; ..."
std::string system_message(std::string_view action, const Path& path, int error);
// The part of system_message() behind its colon.
std::string system_cause(const Path& path, int error);

// Reads at given places; may be shared by threads.
class FileReader {
 public:
  explicit FileReader(const Path& path, std::string_view role = "file");

  // Exactly `bytes` bytes at `offset`; InputError names the file and both sizes if it
  // ends before. ReadError.
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;
  std::uint64_t size() const { return size_; }
  const Path& path() const { return path_; }

 private:
  void reopen() const;

  Path path_;
  std::uint64_t size_ = 0;     // before descriptor_: opening sets it
  std::int64_t modified_ = 0;  // this, too; seconds since 1970
  Descriptor descriptor_;
};

// Writes at given places of one file. Several processes may write disjoint places of one
// file (HDF5 made it, early-allocated; each fills its part of a dataset).
class FileWriter {
 public:
  // create: a new file, and Error where anything has this name; links are not followed.
  enum class Mode { create, existing };
  FileWriter(const Path& path, Mode mode);

  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  // What the next write shall suffer.
  void inject(Fault fault) { fault_ = fault; }
  // Claims disk space up to `bytes` now, so that a full disk shows before the work is
  // done. Does nothing where the file system cannot.
  void reserve(std::uint64_t bytes);
  // Has the system begin to move these bytes to the disk, where it can; sync() has less
  // to wait for then.
  void push(std::uint64_t offset, std::uint64_t bytes);
  // Cuts the file to so many bytes; what goes wrong is not told.
  void cut(std::uint64_t bytes) noexcept;
  // Returns when all that was written is on stable storage.
  void sync();
  void close();

 private:
  Path path_;
  Descriptor descriptor_;
  Fault fault_ = Fault::none;
};

}  // namespace trireme::io

#endif  // TRIREME_IO_FILES_HPP_

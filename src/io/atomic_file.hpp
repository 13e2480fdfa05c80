// io/atomic_file.hpp — nothing appears under its final name before it is whole.
//
// A file (or directory) is written under a temporary name beside its final one, synced,
// and renamed; rename is atomic and the directory is synced after it. Temporary names are
// those of base/temporary_name.hpp.
#ifndef TRIREME_IO_ATOMIC_FILE_HPP_
#define TRIREME_IO_ATOMIC_FILE_HPP_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/files.hpp"

namespace trireme::io {

// Writes a stream of bytes, or hands its temporary name to a writer of its own (HDF5).
// Without commit(), the destructor removes what was written.
class AtomicFile {
 public:
  explicit AtomicFile(Path path);
  ~AtomicFile();
  AtomicFile(AtomicFile&&) = delete;

  const Path& path() const { return path_; }
  const Path& temporary() const { return temporary_; }

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Sync, rename, sync the directory. Whoever wrote by name has closed the file before.
  void commit();

 private:
  Path path_;
  Path temporary_;
  std::unique_ptr<FileWriter> writer_;  // opened by the first write()
  std::uint64_t written_ = 0;
  bool committed_ = false;
};

// InputError where no file can be made under this name: before the work, not after it.
void require_writable(const Path& path);

// A directory filled under its temporary name; its parents are made. Who fills it syncs
// its files. Without commit(), the destructor removes what there is.
class StagedDirectory {
 public:
  explicit StagedDirectory(Path path);
  ~StagedDirectory();
  StagedDirectory(StagedDirectory&&) = delete;

  const Path& path() const { return path_; }
  const Path& temporary() const { return temporary_; }

  // Sync, rename, sync the directory above. Fails where the final name exists.
  void commit();

 private:
  Path path_;
  Path temporary_;
  bool committed_ = false;
};

// What processes that were killed as they made `path` have left under temporary names, to
// be called before it is made again. Removes that of processes of this host that are
// gone; a line for each one that was removed, and for each that may be another process'
// work.
std::vector<std::string> remove_leftovers_of(const Path& path);

void sync_file(const Path& path);
void sync_directory(const Path& path);
// rename(2), then sync of the directory that holds `to`.
void rename_synced(const Path& from, const Path& to);
// Makes the symbolic link `link` point to `target` (as given: relative to link's
// directory), replacing an old one in one step.
void swap_symlink(const Path& target, const Path& link);

}  // namespace trireme::io

#endif  // TRIREME_IO_ATOMIC_FILE_HPP_

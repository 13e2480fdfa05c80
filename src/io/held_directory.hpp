// io/held_directory.hpp — a directory that one process at a time holds: by a lock on the
// file `.lock` in it, and by descriptors, so that it is known when the path leads
// elsewhere.
//
// The lock goes with the process, however that ends. Where the file system knows no locks
// the directory is held all the same, and a second process is not kept out.
#ifndef TRIREME_IO_HELD_DIRECTORY_HPP_
#define TRIREME_IO_HELD_DIRECTORY_HPP_

#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "io/files.hpp"

namespace trireme::io {

// The directory is there, and this process may not write to it.
class UnwritableDirectory : public InputError {
 public:
  using InputError::InputError;
};

class HeldDirectory {
 public:
  // For messages: "run directory"; what who holds it does there, as in "another process
  // trains in 'x'"; and "train elsewhere: --run-dir DIR".
  struct Words {
    std::string what, does, advice;
  };

  // Makes it with its parents where it is not there, and locks it. InputError where that
  // cannot be, or another process holds it; UnwritableDirectory.
  HeldDirectory(Path path, const Words& words);
  // Lets go of it. What the constructor has made is removed again, if nothing else is in
  // it and keep() was not called.
  ~HeldDirectory();
  HeldDirectory(const HeldDirectory&) = delete;
  HeldDirectory& operator=(const HeldDirectory&) = delete;

  const Path& path() const { return path_; }
  void keep() { is_kept_ = true; }
  // Why the path is no longer the directory that is held, or the lock no longer the file
  // of that name: "'a' was moved to '/x/b'". Empty where it is, or where the file system
  // does not tell at the moment.
  std::string loss() const;

 private:
  enum class Attempt { held, gone };  // gone: removed by another process meanwhile

  Attempt try_to_hold(const Words& words);
  void make(const Words& words);
  void open_lock(const Words& words);
  bool lock(const Words& words);
  void write_owner() const;
  void withdraw() noexcept;
  void let_go() noexcept;

  Path path_;
  Descriptor directory_, lock_;
  std::vector<Path> made_;  // directories, the outermost first
  bool has_made_lock_ = false;
  bool is_locked_ = false;  // false: the file system knows no locks
  bool is_kept_ = false;
};

}  // namespace trireme::io

#endif  // TRIREME_IO_HELD_DIRECTORY_HPP_

// io/held_directory.cpp — see held_directory.hpp.
//
// Between two system calls another process may rename, remove or create anything, so that
// each step asks again whether what was opened is still what the path names (by device
// and inode). Directories on the way are made one by one and remembered, since only those
// that this process made may be removed again. The lock is that of the open file (flock):
// it goes with the process, whatever ends it.
#include "io/held_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/wall_time.hpp"

namespace trireme::io {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockName = ".lock";
// Each time another process has to remove the directory between two calls of this one.
constexpr int kAttempts = 100;

std::string owner_text() {
  return fmt::format("process {} on {}, since {}", ::getpid(), host_name(),
                     iso_time(wall_seconds()));
}

// The owner that a lock file names; the file may hold anything.
std::string owner_of(int lock) {
  std::array<char, 256> text{};
  const ssize_t length = ::pread(lock, text.data(), text.size(), 0);
  if (length <= 0) return "an unknown one";
  return {text.data(), static_cast<std::size_t>(length)};
}

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool is_forbidden(int error) {
  return error == EACCES || error == EPERM || error == EROFS;
}

// Where the open directory is now; empty: removed, or not known.
std::string place_of(int directory) {
  std::error_code error;
  const std::string place =
      fs::read_symlink(fmt::format("/proc/self/fd/{}", directory), error).string();
  return error || place.ends_with(" (deleted)") ? std::string() : place;
}

}  // namespace

HeldDirectory::HeldDirectory(Path path, const Words& words) : path_(std::move(path)) {
  try {
    for (int attempt = 0; try_to_hold(words) == Attempt::gone; ++attempt) {
      if (attempt == kAttempts) {  // /proc and its like say so of every new file
        throw InputError(fmt::format(
            "{}. Or {}.", system_message("cannot write", path_ / kLockName, ENOENT),
            words.advice));
      }
      let_go();
    }
  } catch (const Error&) {
    withdraw();
    let_go();
    throw;
  }
}

HeldDirectory::~HeldDirectory() {
  if (!is_kept_) withdraw();
  let_go();
}

HeldDirectory::Attempt HeldDirectory::try_to_hold(const Words& words) {
  make(words);
  directory_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_.is_open()) {
    if (errno == ENOENT) return Attempt::gone;
    throw InputError(fmt::format(
        "{}. Or {}.",
        system_message(fmt::format("cannot open the {}", words.what), path_, errno),
        words.advice));
  }
  open_lock(words);
  if (lock_ < 0) return Attempt::gone;
  is_locked_ = lock(words);
  // Who held it before may have removed what was opened here.
  if (is_locked_ && !loss().empty()) return Attempt::gone;
  write_owner();
  return Attempt::held;
}

// One by one: only what this process has made is its own to remove.
void HeldDirectory::make(const Words& words) {
  std::vector<Path> missing;
  std::error_code ignored;
  Path path = path_.has_filename() ? path_ : path_.parent_path();
  while (!path.empty() && !fs::exists(fs::symlink_status(path, ignored))) {
    missing.push_back(path);
    if (!path.has_parent_path() || path.parent_path() == path) break;
    path = path.parent_path();
  }
  std::reverse(missing.begin(), missing.end());
  for (const Path& directory : missing) {
    if (::mkdir(directory.c_str(), 0777) == 0) {
      made_.push_back(directory);
    } else if (errno != EEXIST) {
      throw InputError(fmt::format(
          "{}. Or {}.",
          system_message(fmt::format("cannot create the {}", words.what), path_, errno),
          words.advice));
    }
  }
  const bool is_there = fs::exists(path_, ignored);
  TRIREME_REQUIRE_INPUT(is_there || !fs::is_symlink(fs::symlink_status(path_, ignored)),
                        "the {} '{}' is a link to '{}', which is not there. Put that "
                        "back, remove the link to do without it, or {}.",
                        words.what, path_.string(),
                        fs::read_symlink(path_, ignored).string(), words.advice);
  TRIREME_REQUIRE_INPUT(!is_there || fs::is_directory(path_, ignored),
                        "the {} '{}' exists and is a file; {}.", words.what,
                        path_.string(), words.advice);
}

// lock_ stays -1 where the directory is gone meanwhile.
void HeldDirectory::open_lock(const Words& words) {
  if (::faccessat(directory_, ".", W_OK | X_OK, 0) != 0) {
    throw UnwritableDirectory(fmt::format(
        "{}. Or {}.",
        system_message(fmt::format("cannot write to the {}", words.what), path_, errno),
        words.advice));
  }
  constexpr int kFlags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  lock_ = Descriptor(::openat(directory_, kLockName, kFlags | O_CREAT | O_EXCL, 0666));
  has_made_lock_ = lock_.is_open();
  if (!has_made_lock_ && errno == EEXIST) {
    lock_ = Descriptor(::openat(directory_, kLockName, kFlags));
  }
  const int error = errno;
  if (lock_ < 0 && error == ENOENT) return;
  const Path path = path_ / kLockName;
  if (lock_ < 0) {
    TRIREME_REQUIRE_INPUT(error != ELOOP,
                          "'{}' is a symbolic link, which is not followed. Remove it, or "
                          "{}.",
                          path.string(), words.advice);
    const std::string message = fmt::format(
        "{}. Or {}.", system_message("cannot write", path, error), words.advice);
    if (is_forbidden(error)) throw UnwritableDirectory(message);
    throw InputError(message);
  }
  struct stat status = {};
  TRIREME_REQUIRE_INPUT(::fstat(lock_, &status) == 0 && S_ISREG(status.st_mode),
                        "'{}' is not a regular file. Remove it, or {}.", path.string(),
                        words.advice);
}

// Takes the lock; false where the file system knows none.
bool HeldDirectory::lock(const Words& words) {
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return true;
  TRIREME_REQUIRE_INPUT(errno != EWOULDBLOCK,
                        "another process {} '{}' ({}). Wait for it to end, or {}.",
                        words.does, path_.string(), owner_of(lock_), words.advice);
  return false;
}

// For who is refused. A disk that is full takes no text and the lock all the same.
void HeldDirectory::write_owner() const {
  const std::string owner = owner_text();
  // Half a text, or that of who held it before, would name the wrong process.
  if (::ftruncate(lock_, 0) == 0 && ::pwrite(lock_, owner.data(), owner.size(), 0) !=
                                        static_cast<ssize_t>(owner.size())) {
    [[maybe_unused]] const int ignored = ::ftruncate(lock_, 0);
  }
}

std::string HeldDirectory::loss() const {
  const std::string name = fmt::format("'{}'", path_.string());
  struct stat held = {}, there = {};
  if (::fstat(directory_, &held) != 0) {
    return errno == ESTALE ? name + " was removed" : std::string();
  }
  const bool is_there = ::stat(path_.c_str(), &there) == 0;
  if (!is_there && errno != ENOENT && errno != ENOTDIR) return {};
  if (!is_there || !is_same_file(held, there)) {
    const std::string place = place_of(directory_);
    const bool is_removed = held.st_nlink == 0 || place.empty();
    return fmt::format("{} was {}{}", name,
                       is_removed ? "removed" : fmt::format("moved to '{}'", place),
                       is_there ? ", and another directory has its name" : "");
  }
  if (!is_locked_) return {};
  if (::fstat(lock_, &held) != 0) return {};
  if (::fstatat(directory_, kLockName, &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? fmt::format("'{}' was removed", (path_ / kLockName).string())
                           : std::string();
  }
  return is_same_file(held, there)
             ? std::string()
             : fmt::format("'{}' was replaced", (path_ / kLockName).string());
}

// Directories that something is in stay; so does a lock file that another process may
// have opened, as the file system does not tell.
void HeldDirectory::withdraw() noexcept {
  if (is_locked_ && !loss().empty()) return;
  if (is_locked_ && has_made_lock_) ::unlinkat(directory_, kLockName, 0);
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) ::rmdir(path->c_str());
  made_.clear();
}

void HeldDirectory::let_go() noexcept {
  lock_.close();
  directory_.close();
  is_locked_ = false;
}

}  // namespace trireme::io

// io/files.cpp — POSIX file calls with their errors; see files.hpp.
//
// Every call is repeated where it was interrupted, and continued where it did less than
// it was asked for. Reads that fail for a cause that passes (a file server that is
// changing over, a limit of the process) are tried again for about a second, with the
// file opened anew where its descriptor has become stale. A write that fails is not tried
// again: what is on disk is then unknown, and whoever writes begins a new file.
#include "io/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "io/atomic_file.hpp"
#include "io/faulty_write.hpp"

namespace trireme::io {

namespace {

// What passes, or is no fault of the file: a network file system that fails over, a
// limit of the process. Tried again for a second or so.
bool may_pass(int error) {
  constexpr std::array kErrors = {EIO,       ESTALE,    ETIMEDOUT, EAGAIN,
                                  EREMOTEIO, ENOTCONN,  EMFILE,    ENFILE,
                                  ENOMEM,    EHOSTDOWN, ESHUTDOWN, ECONNRESET};
  return std::find(kErrors.begin(), kErrors.end(), error) != kErrors.end();
}

// The time between tries of what may pass.
class Patience {
 public:
  // False when it is at an end, or the error will not pass.
  bool waits_after(int error) {
    if (!may_pass(error) || tries_ == kTries) return false;
    std::this_thread::sleep_for(kFirst * (1 << 2 * tries_++));
    return true;
  }

 private:
  static constexpr int kTries = 3;
  static constexpr std::chrono::milliseconds kFirst{50};
  int tries_ = 0;
};

[[noreturn]] void fail_to_read(std::string_view action, const Path& path, int error) {
  const std::string message = system_message(action, path, error);
  if (!may_pass(error)) throw UnreadableError(message);
  throw ReadError(fmt::format(
      "{}; nor at several tries more. The system failed, which says nothing about what "
      "the file holds: try again, or on another node",
      message));
}

// Opens for reading; refuses what is not a regular file.
Descriptor open_for_reading(const Path& path, std::string_view role, std::uint64_t& size,
                            std::int64_t& modified) {
  struct stat info = {};
  Patience patience;
  while (::stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) {
      throw InputError(fmt::format("{} '{}' does not exist", role, path.string()));
    }
    if (patience.waits_after(error)) continue;
    fail_to_read(fmt::format("cannot read {}", role), path, error);
  }
  TRIREME_REQUIRE_INPUT(!S_ISDIR(info.st_mode),
                        "'{}' is a directory; expected a {} (name a file in it)",
                        path.string(), role);
  TRIREME_REQUIRE_INPUT(S_ISREG(info.st_mode),
                        "'{}' is not a regular file; expected a {}", path.string(), role);
  Descriptor descriptor;
  while (
      !(descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC))).is_open()) {
    const int error = errno;
    if (patience.waits_after(error)) continue;
    fail_to_read(fmt::format("cannot open {}", role), path, error);
  }
  size = static_cast<std::uint64_t>(info.st_size);
  modified = info.st_mtime;
  return descriptor;
}

// Writes behind what others have written there.
void append_to_stream(const Path& path, std::string_view content) {
  std::fflush(stdout);
  Descriptor descriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!descriptor.is_open())
    throw Error(system_message("cannot open for writing", path, errno));
  int error = 0;
  for (std::size_t done = 0; done < content.size() && error == 0;) {
    const ssize_t put = ::write(descriptor, content.data() + done,
                                std::min(content.size() - done, kMaxCall));
    if (put >= 0) done += static_cast<std::size_t>(put);
    if (put < 0 && errno != EINTR) error = errno;
  }
  if (!descriptor.close() && error == 0) error = errno;
  if (error != 0) throw Error(system_message("cannot write", path, error));
}

}  // namespace

Path existing_ancestor(Path path) {
  std::error_code ignored;
  path = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::is_directory(path, ignored) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return path;
}

std::uint64_t free_bytes(const Path& path) {
  std::error_code error;
  const auto space = std::filesystem::space(existing_ancestor(path), error);
  return error ? 0 : space.available;
}

std::string system_message(std::string_view action, const Path& path, int error) {
  return fmt::format("{} '{}': {}", action, path.string(), system_cause(path, error));
}

std::string system_cause(const Path& path, int error) {
  std::string text = fmt::format("{} (errno {})", std::strerror(error), error);
  if (error == ENOSPC) {
    text += fmt::format(
        "; {} free on that file system: free some space or name another directory",
        human_bytes(free_bytes(path)));
  } else if (error == EDQUOT) {
    text += "; your disk quota there is used up";
  } else if (error == EFBIG) {
    text +=
        "; a limit on the size of files (ulimit -f) or the file system allows no more";
  } else if (error == EMFILE) {
    text += "; this process may have no more of them open: raise the limit (ulimit -n)";
  } else if (error == ENFILE) {
    text += "; this machine may have no more of them open (/proc/sys/fs/file-max)";
  } else if (error == EACCES || error == EPERM) {
    text += "; check its permissions and owner";
  } else if (error == EROFS) {
    text += "; name a directory on a file system that can be written to";
  }
  return text;
}

std::string read_file(const Path& path, std::string_view role) {
  const FileReader reader(path, role);
  std::string content(static_cast<std::size_t>(reader.size()), '\0');
  reader.read_at(0, content.data(), content.size());
  return content;
}

std::uint64_t file_size(const Path& path, std::string_view role) {
  return FileReader(path, role).size();
}

bool is_stream(const Path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return false;
  if (!S_ISREG(info.st_mode)) return true;
  // Redirected to a file, /dev/stdout is that file's other name.
  const std::string name = std::filesystem::absolute(path).lexically_normal().string();
  return name == "/dev/stdout" || name == "/dev/stderr" || name.starts_with("/dev/fd/") ||
         (name.starts_with("/proc/") && name.find("/fd/") != std::string::npos);
}

void write_file(const Path& path, std::string_view content) {
  if (is_stream(path)) {
    append_to_stream(path, content);
    return;
  }
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void create_directories(const Path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw Error(system_message("cannot create the directory", path, error.value()));
  }
  TRIREME_REQUIRE(std::filesystem::is_directory(path),
                  "'{}' exists and is not a directory; remove it or name another",
                  path.string());
}

void create_directory(const Path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) {
    throw Error(system_message("cannot create the directory", path, errno));
  }
}

void require_absent(const Path& path) {
  TRIREME_REQUIRE_INPUT(!std::filesystem::exists(std::filesystem::symlink_status(path)),
                        "'{}' exists already; name one that does not, or remove it",
                        path.string());
}

FileReader::FileReader(const Path& path, std::string_view role)
    : path_(path), descriptor_(open_for_reading(path, role, size_, modified_)) {}

void FileReader::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
  auto* to = static_cast<std::byte*>(data);
  std::size_t done = 0;
  Patience patience;
  while (done < bytes) {
    const ssize_t got = ::pread(descriptor_, to + done, std::min(bytes - done, kMaxCall),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      if (!patience.waits_after(error)) fail_to_read("cannot read", path_, error);
      reopen();
      continue;
    }
    TRIREME_REQUIRE_INPUT(
        got > 0, "'{}' is truncated: expected {} at offset {}, the file ends at {}",
        path_.string(), format_plural(bytes, "byte"), format_grouped(offset),
        format_grouped(offset + done));
    done += static_cast<std::size_t>(got);
  }
}

// A descriptor may be stale where the path is not. It keeps its number, as other threads
// may be reading.
void FileReader::reopen() const {
  const Descriptor descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) return;  // the next read fails, and says so
  struct stat now = {};
  // The name may be another file's by now, which is left alone.
  if (::fstat(descriptor, &now) == 0 &&
      static_cast<std::uint64_t>(now.st_size) == size_ && now.st_mtime == modified_) {
    ::dup3(descriptor, descriptor_, O_CLOEXEC);
  }
}

FileWriter::FileWriter(const Path& path, Mode mode) : path_(path) {
  const int flags =
      mode == Mode::create ? O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW : O_RDWR;
  descriptor_ = Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!descriptor_.is_open()) {
    throw Error(system_message(
        mode == Mode::create ? "cannot create" : "cannot open for writing", path, errno));
  }
}

void FileWriter::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t put = faulty_write(descriptor_, from + done, bytes - done,
                                     static_cast<off_t>(offset + done), fault_);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw Error(system_message("cannot write", path_, errno));
    done += static_cast<std::size_t>(put);
  }
}

void FileWriter::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  // This is not posix_fallocate, which writes every block itself where the file system
  // cannot reserve any.
  if (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) == 0)
    return;
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
    throw Error(fmt::format("{} ({} needed)",
                            system_message("cannot write", path_, errno),
                            human_bytes(bytes)));
  }
}

void FileWriter::push(std::uint64_t offset, std::uint64_t bytes) {
  // Where it fails, sync() tells.
  ::sync_file_range(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    SYNC_FILE_RANGE_WRITE);
}

void FileWriter::cut(std::uint64_t bytes) noexcept {
  [[maybe_unused]] const int status = ::ftruncate(descriptor_, static_cast<off_t>(bytes));
}

void FileWriter::sync() {
  if (::fsync(descriptor_) != 0) {
    throw Error(system_message("cannot write to stable storage", path_, errno));
  }
}

void FileWriter::close() {
  // Network file systems report failed writes here at the latest.
  if (!descriptor_.close()) {
    throw Error(system_message("cannot finish writing", path_, errno));
  }
}

}  // namespace trireme::io

// tests/unit/io/scratch.hpp — a directory for one test, removed at its end; the message
// of an error; and places where one can write so little that it soon fails.
#ifndef TRIREME_TESTS_UNIT_IO_SCRATCH_HPP_
#define TRIREME_TESTS_UNIT_IO_SCRATCH_HPP_

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace trireme::test {

class Scratch {
 public:
  Scratch() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "trireme-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Lists in each other: [[[...]]].
inline std::string nested_json(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

// A tmpfs of some bytes on a directory. Where that may not be mounted (it takes root, and
// no plain container) is_mounted() is false, and the log says what is not tested.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& at, std::size_t bytes) : path_(at) {
    std::filesystem::create_directories(at);
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("tmpfs", at.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) {
      std::fprintf(stderr, "not tested on a full file system: cannot mount one (%s)\n",
                   std::strerror(errno));
    }
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return mounted_; }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

// While it lives, this process can make no file larger than so many bytes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    set(bytes);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  void set(std::size_t bytes) {
    struct rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0) << std::strerror(errno);
  }

 private:
  void (*handler_)(int);
  struct rlimit before_ = {};
};

// What a test of full disks is given: a directory, and what errors there must say.
class FullDisk {
 public:
  // The bytes: of all files where `limit` is null, else of each.
  FullDisk(std::filesystem::path at, std::size_t bytes, FileSizeLimit* limit)
      : path_(std::move(at)), bytes_(bytes), limit_(limit) {}
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  bool is_file_system() const { return limit_ == nullptr; }
  const char* cause() const {
    return limit_ == nullptr ? "No space left on device" : "File too large";
  }
  const char* advice() const {
    return limit_ == nullptr ? "free on that file system: free some space"
                             : "a limit on the size of files (ulimit -f)";
  }
  // From now on not one byte more can be written; and as it was before.
  void fill() const {
    if (limit_ != nullptr) return limit_->set(0);
    std::ofstream file(path_ / "filler", std::ios::binary);
    for (std::size_t i = 0; i < bytes_ && file; i += 512) {
      file << std::string(512, 'x') << std::flush;
    }
  }
  void relieve() const {
    if (limit_ != nullptr) return limit_->set(bytes_);
    std::filesystem::remove(path_ / "filler");
  }

 private:
  std::filesystem::path path_;
  std::size_t bytes_;
  FileSizeLimit* limit_;
};

// Calls test(const FullDisk&) under a limit on the size of files, which anyone may set,
// and once more on a small file system where that can be mounted.
template <class F>
void on_full_disks(std::size_t bytes, F&& test) {
  {
    SCOPED_TRACE("under a limit on the size of files");
    const Scratch scratch;
    FileSizeLimit limit(bytes);
    test(FullDisk(scratch.path(), bytes, &limit));
  }
  SCOPED_TRACE("on a small file system");
  const Scratch scratch;
  const SmallDisk disk(scratch / "disk", bytes);
  if (disk.is_mounted()) test(FullDisk(scratch / "disk", bytes, nullptr));
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void spill(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);  // ext4 flushes a file that is cut and written anew
  std::ofstream(path, std::ios::binary) << content;
}

// What() of the E that f throws; the test fails by "(nothing thrown)" in comparisons.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing thrown)";
}

}  // namespace trireme::test

#endif  // TRIREME_TESTS_UNIT_IO_SCRATCH_HPP_

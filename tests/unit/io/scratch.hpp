// tests/unit/io/scratch.hpp — a directory for one test, removed at its end; the message
// of an error; and a file system so small that it fills up (for root only).
#ifndef TRIREME_TESTS_UNIT_IO_SCRATCH_HPP_
#define TRIREME_TESTS_UNIT_IO_SCRATCH_HPP_

#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

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

// A tmpfs of some bytes on a directory; is_mounted() is false without the right to mount.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& at, std::size_t bytes) : path_(at) {
    std::filesystem::create_directories(at);
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("tmpfs", at.c_str(), "tmpfs", 0, options.c_str()) == 0;
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

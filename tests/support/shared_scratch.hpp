// tests/support/shared_scratch.hpp — one directory for all ranks of a test: rank 0 makes
// it, and removes it when all have come to the end.
#ifndef TRIREME_TESTS_SUPPORT_SHARED_SCRATCH_HPP_
#define TRIREME_TESTS_SUPPORT_SHARED_SCRATCH_HPP_

#include <filesystem>
#include <optional>
#include <string>

#include "comm/communicator.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

class SharedScratch {
 public:
  explicit SharedScratch(comm::Communicator& world) : world_(world) {
    std::string directory;
    if (world_.rank() == 0) directory = scratch_.emplace().path().string();
    world_.broadcast(directory);
    path_ = directory;
  }
  ~SharedScratch() { world_.barrier(); }
  SharedScratch(const SharedScratch&) = delete;
  SharedScratch& operator=(const SharedScratch&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  // A file for all ranks to read.
  std::filesystem::path put(const std::string& name, const std::string& text) const {
    if (world_.rank() == 0) spill(path_ / name, text);
    world_.barrier();
    return path_ / name;
  }

 private:
  comm::Communicator& world_;
  std::optional<Scratch> scratch_;
  std::filesystem::path path_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_SUPPORT_SHARED_SCRATCH_HPP_

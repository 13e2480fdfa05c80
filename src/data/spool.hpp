// data/spool.hpp — a queue of bytes that is larger than memory may be: written once, then
// read once from the beginning. Above a limit it goes to a file without a name, which the
// system removes when the process ends, however that comes about.
#ifndef TRIREME_DATA_SPOOL_HPP_
#define TRIREME_DATA_SPOOL_HPP_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "io/files.hpp"

namespace trireme::data {

class Spool {
 public:
  // `beside`: the file is made in this path's directory, under a name that begins with
  // it.
  Spool(io::Path beside, std::size_t memory_limit);
  ~Spool();

  void append(const void* data, std::size_t bytes);
  std::uint64_t bytes() const { return spilled_ + buffer_.size(); }
  // Calls take(data, bytes) for consecutive blocks of all that was appended.
  void drain(const std::function<void(std::byte*, std::size_t)>& take);

 private:
  void spill();

  io::Path path_;
  std::size_t limit_;
  std::vector<std::byte> buffer_;
  std::uint64_t spilled_ = 0;
  struct File;
  std::unique_ptr<File> file_;  // none until the limit is reached
};

}  // namespace trireme::data

#endif  // TRIREME_DATA_SPOOL_HPP_

// io/checksum.hpp — XXH3-64, the checksum of every file Trireme writes: fast enough (tens
// of GB/s) to be always on. It guards against damage, not against malice.
#ifndef TRIREME_IO_CHECKSUM_HPP_
#define TRIREME_IO_CHECKSUM_HPP_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::io {

// The checksum of a stream: it does not depend on how the bytes are cut into updates.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;

  void update(const void* data, std::size_t bytes);
  std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum(const void* data, std::size_t bytes);

struct FileSum {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};
// Reads the whole file once.
FileSum checksum_file(const std::filesystem::path& path);

// 16 lower-case hexadecimal digits, and back (InputError when it is not that).
std::string to_hex(std::uint64_t checksum);
std::uint64_t from_hex(std::string_view text);

}  // namespace trireme::io

#endif  // TRIREME_IO_CHECKSUM_HPP_

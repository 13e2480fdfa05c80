// io/mapped_file.hpp — a file as read-only memory. Files of ours are replaced by rename,
// never rewritten; where somebody shortens one under its mapping, its readers see zeros
// (MappingGuard), and ask require_uncut() before they use what they have read.
#ifndef TRIREME_IO_MAPPED_FILE_HPP_
#define TRIREME_IO_MAPPED_FILE_HPP_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/mapping_guard.hpp"
#include "io/files.hpp"

namespace trireme::io {

class MappedFile {
 public:
  enum class Access { sequential, random };

  MappedFile() = default;
  explicit MappedFile(const Path& path, Access access = Access::random,
                      std::string_view role = "file");
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  const Path& path() const { return path_; }

  // InputError where a part of what was read so far was not there any more.
  void require_uncut() const;
  // The bytes [offset, offset + bytes); InputError when the file is shorter, with both
  // sizes. `what` names what should be there ("/tokens").
  const std::byte* range(std::uint64_t offset, std::uint64_t bytes,
                         std::string_view what) const;
  // The bytes as `count` elements of T; also checks the alignment.
  template <class T>
  const T* array(std::uint64_t offset, std::uint64_t count, std::string_view what) const {
    check_array(offset, count, sizeof(T), alignof(T), what);
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  void check_array(std::uint64_t offset, std::uint64_t count, std::size_t size,
                   std::size_t alignment, std::string_view what) const;

  Path path_;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  MappingGuard guard_;
};

}  // namespace trireme::io

#endif  // TRIREME_IO_MAPPED_FILE_HPP_

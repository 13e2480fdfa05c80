// io/mapped_file.cpp — mmap with size checks; see mapped_file.hpp.
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/checked.hpp"
#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme::io {

MappedFile::MappedFile(const Path& path, Access access, std::string_view role)
    : path_(path), size_(file_size(path, role)) {
  if (size_ == 0) return;  // mmap refuses empty files
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open()) {
    throw InputError(system_message(fmt::format("cannot open {}", role), path, errno));
  }
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) throw InputError(system_message("cannot map", path, errno));
  data_ = static_cast<const std::byte*>(data);
  guard_ = MappingGuard(data, size_);
  ::madvise(data, size_, access == Access::sequential ? MADV_SEQUENTIAL : MADV_RANDOM);
}

MappedFile::~MappedFile() {
  guard_ = MappingGuard();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(guard_, other.guard_);
  return *this;
}

void MappedFile::require_uncut() const {
  TRIREME_REQUIRE_INPUT(!guard_.is_cut(),
                        "'{}' was cut short while it was read, or its disk fails. Put "
                        "the whole file back",
                        path_.string());
}

const std::byte* MappedFile::range(std::uint64_t offset, std::uint64_t bytes,
                                   std::string_view what) const {
  TRIREME_REQUIRE_INPUT(is_range_within(offset, bytes, size_),
                        "'{}' is truncated: {} takes {} from byte {}, the file has {}",
                        path_.string(), what, format_plural(bytes, "byte"),
                        format_grouped(offset), format_grouped(size_));
  return data_ + offset;
}

void MappedFile::check_array(std::uint64_t offset, std::uint64_t count, std::size_t size,
                             std::size_t alignment, std::string_view what) const {
  const auto bytes = checked_multiply(count, std::uint64_t{size});
  TRIREME_REQUIRE_INPUT(bytes.has_value(), "'{}': {} has an impossible length, {}",
                        path_.string(), what, count);
  range(offset, *bytes, what);
  TRIREME_REQUIRE_INPUT(offset % alignment == 0,
                        "'{}': {} begins at byte {}, which is no multiple of {}",
                        path_.string(), what, offset, alignment);
}

}  // namespace trireme::io

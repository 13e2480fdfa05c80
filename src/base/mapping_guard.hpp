// base/mapping_guard.hpp — a mapped file that somebody cuts does not end the process.
//
// The kernel sends SIGBUS to who touches a page of a mapping that is gone: the file was
// shortened, its device or server fails, or a file system that copies on write is full.
// Where a guard watches that memory, its handler puts a page of zeros there, which is
// this process' own and which no file has, and the access is done again. Whoever reads
// asks is_cut() before it believes what it has read. A SIGBUS of any other origin is left
// to what was there to handle it before the first guard.
#ifndef TRIREME_BASE_MAPPING_GUARD_HPP_
#define TRIREME_BASE_MAPPING_GUARD_HPP_

#include <cstddef>
#include <utility>

namespace trireme {

class MappingGuard {
 public:
  MappingGuard() = default;  // watches nothing
  // Memory of a mapping, from its first page on. Where very many are watched already,
  // this one is not.
  MappingGuard(const void* data, std::size_t bytes);
  ~MappingGuard();  // before the memory is unmapped
  MappingGuard(MappingGuard&& other) noexcept { *this = std::move(other); }
  MappingGuard& operator=(MappingGuard&& other) noexcept {
    std::swap(place_, other.place_);
    return *this;
  }

  // Whether a page of the mapping was gone when it was touched.
  bool is_cut() const noexcept;

 private:
  int place_ = -1;
};

}  // namespace trireme

#endif  // TRIREME_BASE_MAPPING_GUARD_HPP_

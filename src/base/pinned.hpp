// base/pinned.hpp — host memory that a device copies from and to by itself, and such
// copies: the host goes on while they are under way.
//
// Where a copy is in its queue an Event tells. Until that is past, the host neither reads
// what is copied to it nor writes what is copied from it.
#ifndef TRIREME_BASE_PINNED_HPP_
#define TRIREME_BASE_PINNED_HPP_

#include <cstddef>
#include <span>
#include <type_traits>

#include "base/exec.hpp"

namespace trireme {

// Page-locked where there is a device; plain memory where kernels run on the host.
using PinnedMemory = Kokkos::SharedHostPinnedSpace;
template <class T>
using PinnedArray = Kokkos::View<T*, Kokkos::LayoutRight, PinnedMemory>;

// Rows of bytes that may have gaps where they come from, and have none where they go to.
struct RowCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t rows = 1;
  std::size_t row_bytes = 0;
  std::size_t stride = 0;  // from row to row, where they come from; for rows > 1

  std::size_t bytes() const { return rows * row_bytes; }
};

// By the host, with all its threads, from host memory to host memory.
void copy_rows(std::span<const RowCopy> copies);
// From device to pinned memory, on the Exec's queue. The list may go when this returns.
void copy_rows_to_host(const Exec& exec, std::span<const RowCopy> copies);

// The same of plain bytes, on the Exec's queue: what was launched before has ended when
// they begin, and what is launched after begins when they have ended. Both memories live
// until then.
void copy_bytes_to_device(const Exec& exec, std::byte* to, const std::byte* from,
                          std::size_t bytes);
void copy_bytes_to_host(const Exec& exec, std::byte* to, const std::byte* from,
                        std::size_t bytes);

// Of all elements of a device View, from and to memory of a PinnedArray.
template <class To>
void copy_to_device(const Exec& exec, const To& to, const typename To::value_type* from) {
  static_assert(std::is_trivially_copyable_v<typename To::value_type>);
  copy_bytes_to_device(exec, reinterpret_cast<std::byte*>(to.data()),
                       reinterpret_cast<const std::byte*>(from),
                       static_cast<std::size_t>(bytes_of(to)));
}
template <class From>
void copy_to_host(const Exec& exec, typename From::non_const_value_type* to,
                  const From& from) {
  static_assert(std::is_trivially_copyable_v<typename From::value_type>);
  copy_bytes_to_host(exec, reinterpret_cast<std::byte*>(to),
                     reinterpret_cast<const std::byte*>(from.data()),
                     static_cast<std::size_t>(bytes_of(from)));
}

}  // namespace trireme

#endif  // TRIREME_BASE_PINNED_HPP_

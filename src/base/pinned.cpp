// base/pinned.cpp — what copies on a host and on a GPU have in common: see pinned.hpp.
#include "base/pinned.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace trireme {

namespace {

// What a thread copies at a time: small enough that no thread waits long for the last.
constexpr std::size_t kThreadBytes = std::size_t{256} << 10;

void cut(const RowCopy& copy, std::vector<RowCopy>& pieces) {
  if (copy.rows <= 1 || copy.row_bytes == copy.stride) {
    const std::size_t bytes = copy.bytes();
    for (std::size_t at = 0; at < bytes; at += kThreadBytes) {
      pieces.push_back(
          {copy.to + at, copy.from + at, 1, std::min(kThreadBytes, bytes - at), 0});
    }
    return;
  }
  const std::size_t at_once = std::max<std::size_t>(1, kThreadBytes / copy.row_bytes);
  for (std::size_t row = 0; row < copy.rows; row += at_once) {
    RowCopy piece = copy;
    piece.rows = std::min(at_once, copy.rows - row);
    piece.to += row * copy.row_bytes;
    piece.from += row * copy.stride;
    pieces.push_back(piece);
  }
}

}  // namespace

void copy_rows(std::span<const RowCopy> copies) {
  using Host = Kokkos::DefaultHostExecutionSpace;
  std::vector<RowCopy> pieces;
  for (const RowCopy& copy : copies) {
    if (copy.bytes() > 0) cut(copy, pieces);
  }
  const RowCopy* const list = pieces.data();
  Kokkos::parallel_for("trireme::base::copy_rows",
                       Kokkos::RangePolicy<Host, Kokkos::Schedule<Kokkos::Dynamic>>(
                           0, static_cast<int>(pieces.size())),
                       [=](int i) {
                         const RowCopy& piece = list[i];
                         for (std::size_t row = 0; row < piece.rows; ++row) {
                           std::memcpy(piece.to + row * piece.row_bytes,
                                       piece.from + row * piece.stride, piece.row_bytes);
                         }
                       });
}

}  // namespace trireme

// kernels/impl/pieces.hpp — 16 bytes of a row at once, as a thread of a GPU reads memory.
#ifndef TRIREME_KERNELS_IMPL_PIECES_HPP_
#define TRIREME_KERNELS_IMPL_PIECES_HPP_

#include <cstdint>

#include "base/exec.hpp"

// Before a loop over what a thread of a GPU has in registers, which are not indexed.
#if defined(__CUDA_ARCH__)
#define TRIREME_IN_REGISTERS _Pragma("unroll")
#else
#define TRIREME_IN_REGISTERS
#endif

namespace trireme::kernels::impl {

template <class T>
struct alignas(16) Piece {
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  T element[kElements];
};

// The elements from `from` on, of which the row has `count` yet; zeros behind them.
// kAligned: `from` is a multiple of 16 bytes, and a whole piece can be read.
template <bool kAligned, class T>
KOKKOS_FORCEINLINE_FUNCTION Piece<T> load_piece(const T* from, int count) {
  if constexpr (kAligned) {
    return *reinterpret_cast<const Piece<T>*>(from);
  } else {
    Piece<T> piece = {};
    for (int e = 0; e < Piece<T>::kElements; ++e) {
      if (e < count) piece.element[e] = from[e];
    }
    return piece;
  }
}

// Whether rows of so many columns from `data` on are made of whole pieces.
template <class T>
bool has_pieces(const T* data, index_t columns) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<T>) == 0 &&
         columns % Piece<T>::kElements == 0;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_PIECES_HPP_

// kernels/impl/pieces.hpp — 16 bytes of a row at once, as a thread of a GPU reads memory.
#ifndef TRIREME_KERNELS_IMPL_PIECES_HPP_
#define TRIREME_KERNELS_IMPL_PIECES_HPP_

#include <cstddef>
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

#if defined(__CUDA_ARCH__)
// 8 or 16 bytes of a GPU's memory by one instruction. Of an assignment nvcc makes four
// here and there, each for a quarter of the bytes: in six of seven copies of a loop.
template <class Bytes>
KOKKOS_FORCEINLINE_FUNCTION void store_whole(Bytes* to, const Bytes& bytes) {
  const std::size_t address = __cvta_generic_to_global(to);
  if constexpr (sizeof(Bytes) == 16) {
    const auto w = Kokkos::bit_cast<uint4>(bytes);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(w.x),
                 "r"(w.y), "r"(w.z), "r"(w.w)
                 : "memory");
  } else {
    static_assert(sizeof(Bytes) == 8);
    const auto w = Kokkos::bit_cast<uint2>(bytes);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(w.x), "r"(w.y)
                 : "memory");
  }
}
#endif

// Whether rows of so many columns from `data` on are made of whole pieces.
template <class T>
bool has_pieces(const T* data, index_t columns) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<T>) == 0 &&
         columns % Piece<T>::kElements == 0;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_PIECES_HPP_

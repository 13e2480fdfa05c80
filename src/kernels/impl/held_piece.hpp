// kernels/impl/held_piece.hpp — 16 bytes of a row as a thread of a GPU keeps them:
// numbers of 16 bits in pairs, since nvcc gives each number a register.
#ifndef TRIREME_KERNELS_IMPL_HELD_PIECE_HPP_
#define TRIREME_KERNELS_IMPL_HELD_PIECE_HPP_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/types.hpp"
#include "kernels/impl/pieces.hpp"
#include "kernels/impl/team_lanes.hpp"

namespace trireme::kernels::impl {

template <class T>
struct HeldPiece {
  using A = Accumulator<T>;
  static constexpr bool kHasPairs = sizeof(T) == 2;
  static constexpr int kElements = Piece<T>::kElements;
  using Unit = std::conditional_t<kHasPairs, std::uint32_t, T>;

  Piece<Unit> units = {};

  KOKKOS_FORCEINLINE_FUNCTION A number(int e) const {
    if constexpr (kHasPairs) {
      return detail::half_of<T, A>(units.element[e / 2], e % 2);
    } else {
      return static_cast<A>(units.element[e]);
    }
  }
  // The piece of such numbers, each rounded.
  KOKKOS_FORCEINLINE_FUNCTION static HeldPiece of(const A (&numbers)[kElements]) {
    HeldPiece piece;
    for (int i = 0; i < Piece<Unit>::kElements; ++i) {
      if constexpr (kHasPairs) {
        piece.units.element[i] = detail::pair_of<T>(numbers[2 * i], numbers[2 * i + 1]);
      } else {
        piece.units.element[i] = static_cast<T>(numbers[i]);
      }
    }
    return piece;
  }
};

// As load_piece(), and back. A host copies bytes, since words of 32 bits may not lie
// where numbers of 16 do.
template <bool kAligned, class T>
KOKKOS_FORCEINLINE_FUNCTION HeldPiece<T> hold_piece(const T* from, int count) {
  if constexpr (kHostExecution) {
    const Piece<T> piece = kAligned ? Piece<T>{} : load_piece<false>(from, count);
    HeldPiece<T> held;
    std::memcpy(static_cast<void*>(&held), kAligned ? from : piece.element, sizeof(held));
    return held;
  } else if constexpr (kAligned) {
    using Units = Piece<typename HeldPiece<T>::Unit>;
    return {*reinterpret_cast<const Units*>(from)};
  } else {
    return Kokkos::bit_cast<HeldPiece<T>>(load_piece<false>(from, count));
  }
}
// `to`: a multiple of 16 bytes.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void store_piece(const HeldPiece<T>& piece, T* to) {
  if constexpr (kHostExecution) {
    std::memcpy(static_cast<void*>(to), &piece, sizeof(piece));
  } else {
    *reinterpret_cast<HeldPiece<T>*>(to) = piece;
  }
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_HELD_PIECE_HPP_

// kernels/impl/norm_gradients.hpp — a block of rows of the backward pass of a norm, where
// a GPU's threads have one piece of each.
//
// What a thread has of a row lies in registers from the row's two sums to its gradients,
// and the next row is under way meanwhile: it waits for memory no longer than others do.
// Elsewhere column_sums.hpp and norm_rows.hpp read each row twice. The order of sums is
// the same, and on a host so are the bits; nvcc contracts each kernel by itself.
#ifndef TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_

#include "base/types.hpp"
#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {
namespace detail {

// What a thread reads of a row.
template <class T>
struct LoadedGradients {
  StoredEight<T> d_y, x, by_pass;
  Accumulator<T> center, scale;
};
// `at` is counted from the first row's beginning.
template <bool kResidual, class T>
KOKKOS_FORCEINLINE_FUNCTION LoadedGradients<T> load_gradients(const NormGradients<T>& of,
                                                              index_t row, PieceAt at) {
  LoadedGradients<T> loaded;
  loaded.d_y = load_stored(of.d_y, at);
  loaded.x = load_stored(of.x, at);
  if constexpr (kResidual) loaded.by_pass = load_stored(of.d_residual, at);
  loaded.center = of.mean[row];
  loaded.scale = of.rstd[row];
  return loaded;
}

// Its numbers. The gradient that by-passes the norm is needed last.
template <class T>
struct PieceOfGradients {
  using A = Accumulator<T>;
  Eight<A> d_y, x_hat;
  StoredEight<T> by_pass;
  A scale;

  KOKKOS_FORCEINLINE_FUNCTION explicit PieceOfGradients(const LoadedGradients<T>& loaded)
      : d_y(numbers_of<A>(loaded.d_y)),
        x_hat((numbers_of<A>(loaded.x) - Eight<A>(loaded.center)) *
              Eight<A>(loaded.scale)),
        by_pass(loaded.by_pass),
        scale(loaded.scale) {}
};

// What a thread makes of its piece, with the means of g and of g x_hat over the row.
template <bool kResidual, bool kMasked, class T, int kSums>
KOKKOS_FORCEINLINE_FUNCTION void write_gradients(
    const DropoutMask<Accumulator<T>>& mask, const StepState* step,
    const NormGradients<T>& of, index_t row, PieceAt in_row, PieceAt at,
    const PieceOfGradients<T>& piece, const Eight<Accumulator<T>>& gamma,
    const Sums<Accumulator<T>, 2>& means, Terms<Eight<Accumulator<T>>, kSums>& sums) {
  using A = Accumulator<T>;
  Eight<A> d_x = Eight<A>(piece.scale) * (piece.d_y * gamma - Eight<A>(means.of[0]) -
                                          piece.x_hat * Eight<A>(means.of[1]));
  if constexpr (kResidual) d_x = d_x + numbers_of<A>(piece.by_pass);
  d_x = written<A>(of.d_x, at, d_x);
  if constexpr (kMasked) {
    d_x = dropping(mask, WordsOfRow(mask, *step, row).at(in_row))(d_x);
    d_x = written<A>(of.d_branch, at, d_x);
  }
  sums.of[0] = sums.of[0] + piece.d_y * piece.x_hat;
  sums.of[1] = sums.of[1] + piece.d_y;
  if constexpr (kSums == 3) sums.of[2] = sums.of[2] + d_x;
}

}  // namespace detail

// Gradients of a block of rows, and their sums over it: of gamma, beta and, where there
// are three, the bias. False where a thread would have more than a piece.
template <bool kResidual, bool kMasked, class T, int kSums>
KOKKOS_FORCEINLINE_FUNCTION bool norm_gradients_in_registers(
    const TeamRow& team, const DropoutMask<Accumulator<T>>& mask, const StepState* step,
    Accumulator<T> per_column, const BlockOfRows<Accumulator<T>, kSums>& block,
    const NormGradients<T>& of) {
  using A = Accumulator<T>;
  if (!holds_one_piece(team, of.h)) return false;
  // A thread without a piece reads the first one, and adds nothing.
  const bool has_piece = index_t{kPieceColumns} * team.rank < of.h;
  const PieceAt in_row{has_piece ? index_t{kPieceColumns} * team.rank : 0};
  const Eight<A> gamma = read<A>(of.gamma, in_row);
  Terms<Eight<A>, kSums> sums;
  for (int k = 0; k < kSums; ++k) sums.of[k] = Eight<A>(A{0});
  const index_t begin = block.rows.begin, end = block.rows.end, apart = block.rows.step;
  PieceAt at = begin * of.h + in_row;
  detail::LoadedGradients<T> next{};
  if (begin < end) next = detail::load_gradients<kResidual>(of, begin, at);
  int turn = 0;
  team_barrier(team);  // a team may have had another block before, and a turn of it last
  for (index_t row = begin; row < end; row += apart) {
    const detail::PieceOfGradients<T> piece(next);
    const PieceAt below = apart * of.h + at;
    if (row + apart < end) {
      next = detail::load_gradients<kResidual>(of, row + apart, below);
    }
    detail::Sums<A, 2> means;
    if (has_piece) {
      const Eight<A> g = piece.d_y * gamma;
      means.of[0] = sum_of(g);
      means.of[1] = sum_of(g * piece.x_hat);
    }
    means = detail::reduce_in_turn(team, means, turn);
    turn = 1 - turn;
    for (A& mean : means.of) mean *= per_column;
    if (has_piece) {
      detail::write_gradients<kResidual, kMasked>(mask, step, of, row, in_row, at, piece,
                                                  gamma, means, sums);
    }
    at = below;
  }
  if (!has_piece) return true;
  for (int k = 0; k < kSums; ++k) write(block.to[k], in_row, sums.of[k]);
  return true;
}

// A host has its own way.
template <bool kResidual, bool kMasked, class A, class T, int kSums>
KOKKOS_FORCEINLINE_FUNCTION bool norm_gradients_in_registers(const HostRow&,
                                                             const DropoutMask<A>&,
                                                             const StepState*, A,
                                                             const BlockOfRows<A, kSums>&,
                                                             const NormGradients<T>&) {
  return false;
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_

// kernels/impl/norm_gradients.hpp — the backward pass of a norm, alone or with the
// residual addition before it: one pass over rows that leaves their gradients, and sums
// over blocks of rows.
//
// Where a GPU's threads have one piece of each row, what a thread has of it lies in
// registers from the row's sums to its gradients, and the next row is under way
// meanwhile: it waits for memory no longer than others do. Elsewhere each row is read
// twice. The order of sums is the same, and on a host so are the bits; nvcc contracts
// each kernel by itself.
#ifndef TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_

#include "base/types.hpp"
#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/norm.hpp"
#include "kernels/reductions.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// What such a pass has: a gradient that by-passes the norm; a branch that was added
// before the norm, with a mask, with a bias.
template <NormKind kKindOf, bool kHasResidual, bool kIsMasked = false,
          bool kHasBias = false>
struct NormPass {
  static constexpr NormKind kKind = kKindOf;
  static constexpr bool kIsLayerNorm = kKind == NormKind::layernorm;
  static constexpr bool kResidual = kHasResidual, kMasked = kIsMasked, kBias = kHasBias;
  // Whether y may have a second gradient.
  static constexpr bool kMayAdd = kBias && !kResidual;
  static constexpr int kSums = 1 + (kIsLayerNorm ? 1 : 0) + (kBias ? 1 : 0);
};

// Its pointers; those of what a pass has not are null. d_y2 is added to d_y, where there
// is one.
template <class T>
struct NormGradients {
  using A = Accumulator<T>;
  const T *d_y = nullptr, *x = nullptr, *gamma = nullptr, *d_residual = nullptr,
          *d_y2 = nullptr;
  const A *mean = nullptr, *rstd = nullptr;
  T *d_x = nullptr, *d_branch = nullptr;
  A *gamma_sums = nullptr, *beta_sums = nullptr, *bias_sums = nullptr;
  index_t h = 0;
};

// Of Views as norm_backward_input() has them.
template <class T>
NormGradients<T> norm_gradients(const char* kernel, NormKind kind, View2<const T> d_y,
                                View2<const T> x, View1<const T> gamma,
                                View1<const Accumulator<T>> mean,
                                View1<const Accumulator<T>> rstd,
                                View2<const T> d_residual, View2<T> d_x) {
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const bool has_residual = d_residual.extent(0) != 0;
  require_extents(kernel, "d_y", d_y, rows, h);
  require_extent(kernel, "gamma", gamma, h);
  require_extent(kernel, "mean", mean, kind == NormKind::layernorm ? rows : 0);
  require_extent(kernel, "rstd", rstd, rows);
  if (has_residual) require_extents(kernel, "d_residual", d_residual, rows, h);
  require_extents(kernel, "d_x", d_x, rows, h);
  NormGradients<T> of;
  of.d_y = d_y.data();
  of.x = x.data();
  of.gamma = gamma.data();
  of.d_residual = has_residual ? d_residual.data() : nullptr;
  of.mean = mean.data();
  of.rstd = rstd.data();
  of.d_x = d_x.data();
  of.h = h;
  return of;
}

// With the places of sums.
template <class T>
void set_norm_sums(const char* kernel, NormKind kind, index_t rows,
                   const NormPartials<Accumulator<T>>& partials, NormGradients<T>& of) {
  const index_t blocks = partial_count(rows, of.h);
  const bool has_beta = kind == NormKind::layernorm;
  require_extents(kernel, "gamma's partials", partials.gamma, blocks, of.h);
  require_extents(kernel, "beta's partials", partials.beta, has_beta ? blocks : 0,
                  has_beta ? of.h : 0);
  of.gamma_sums = partials.gamma.data();
  of.beta_sums = partials.beta.data();
}

namespace detail {

// What the numbers of some columns add to the sums of gamma, of beta, and of the bias.
template <class Pass, class Value>
KOKKOS_FORCEINLINE_FUNCTION Terms<Value, Pass::kSums> norm_terms(const Value& d_y,
                                                                 const Value& x_hat,
                                                                 const Value& d_branch) {
  if constexpr (Pass::kIsLayerNorm && Pass::kBias) {
    return terms_of(d_y * x_hat, d_y, d_branch);
  } else if constexpr (Pass::kIsLayerNorm) {
    return terms_of(d_y * x_hat, d_y);
  } else if constexpr (Pass::kBias) {
    return terms_of(d_y * x_hat, d_branch);
  } else {
    return terms_of(d_y * x_hat);
  }
}
// Where a block's sums go, in that order.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION BlockOfRows<Accumulator<T>, Pass::kSums> block_of_gradients(
    const NormGradients<T>& of, const RowBlocks& blocks, index_t block) {
  const index_t at = block * of.h;
  const RowBlocks::Rows rows = blocks.of(block);
  if constexpr (Pass::kIsLayerNorm && Pass::kBias) {
    return {rows, of.h, {of.gamma_sums + at, of.beta_sums + at, of.bias_sums + at}};
  } else if constexpr (Pass::kIsLayerNorm) {
    return {rows, of.h, {of.gamma_sums + at, of.beta_sums + at}};
  } else if constexpr (Pass::kBias) {
    return {rows, of.h, {of.gamma_sums + at, of.bias_sums + at}};
  } else {
    return {rows, of.h, {of.gamma_sums + at}};
  }
}

// What a thread reads of a row. `other` is the gradient that by-passes the norm, or the
// second one of y.
template <class T>
struct LoadedGradients {
  StoredEight<T> d_y, x, other;
  Accumulator<T> center, scale;
};
// `at` is counted from the first row's beginning. Ahead of time: zero_of_thread() is in
// `row`.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION LoadedGradients<T> load_gradients(const NormGradients<T>& of,
                                                              index_t row, PieceAt at) {
  LoadedGradients<T> loaded;
  loaded.d_y = load_stored(of.d_y, at);
  loaded.x = load_stored(of.x, at);
  if constexpr (Pass::kResidual) loaded.other = load_stored(of.d_residual, at);
  if constexpr (Pass::kMayAdd) {
    if (of.d_y2 != nullptr) loaded.other = load_stored(of.d_y2, at);
  }
  loaded.center = Pass::kIsLayerNorm ? of.mean[row] : Accumulator<T>{0};
  loaded.scale = of.rstd[row];
  return loaded;
}

// Its numbers. The gradient that by-passes the norm is needed last.
template <class Pass, class T>
struct PieceOfGradients {
  using A = Accumulator<T>;
  Eight<A> d_y, x_hat;
  StoredEight<T> by_pass;
  A scale;

  KOKKOS_FORCEINLINE_FUNCTION PieceOfGradients(const LoadedGradients<T>& loaded,
                                               bool adds)
      : d_y(numbers_of<A>(loaded.d_y)),
        x_hat(normed<Pass::kKind>(numbers_of<A>(loaded.x), loaded.center, loaded.scale)),
        by_pass(loaded.other),
        scale(loaded.scale) {
    if constexpr (Pass::kMayAdd) {
      if (adds) {
        d_y = numbers_of<A>(stored_as<T>(d_y + numbers_of<A>(loaded.other)));
      }
    }
  }
};

// What a thread makes of its piece, with the means of g, which an RMS norm has not, and
// of g x_hat over the row.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION void write_gradients(
    const DropoutMask<Accumulator<T>>& mask, const DrawnBy& step,
    const NormGradients<T>& of, index_t row, PieceAt in_row, PieceAt at,
    const PieceOfGradients<Pass, T>& piece, const Eight<Accumulator<T>>& gamma,
    Accumulator<T> mean_g, Accumulator<T> mean_gx,
    Terms<Eight<Accumulator<T>>, Pass::kSums>& sums) {
  using A = Accumulator<T>;
  Eight<A> d_x =
      d_x_of<Pass::kKind>(piece.d_y * gamma, piece.x_hat, piece.scale, mean_g, mean_gx);
  if constexpr (Pass::kResidual) d_x = d_x + numbers_of<A>(piece.by_pass);
  d_x = written<A>(of.d_x, at, d_x);
  if constexpr (Pass::kMasked) {
    d_x = dropping(mask, WordsOfRow(mask, step, row).at(in_row))(d_x);
    d_x = written<A>(of.d_branch, at, d_x);
  }
  const auto terms = norm_terms<Pass>(piece.d_y, piece.x_hat, d_x);
  for (int k = 0; k < Pass::kSums; ++k) sums.of[k] = sums.of[k] + terms.of[k];
}

// Gradients of a block of rows, and their sums over it. False where a thread would have
// more than a piece.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION bool gradients_in_registers(
    const TeamRow& team, const DropoutMask<Accumulator<T>>& mask, const StepState* step,
    Accumulator<T> per_column, const BlockOfRows<Accumulator<T>, Pass::kSums>& block,
    const NormGradients<T>& of) {
  using A = Accumulator<T>;
  if (!holds_one_piece(team, of.h)) return false;
  // A thread without a piece reads the first one, and adds nothing.
  const bool has_piece = index_t{kPieceColumns} * team.rank < of.h;
  const PieceAt in_row{has_piece ? index_t{kPieceColumns} * team.rank : 0};
  const Eight<A> gamma = read<A>(of.gamma, in_row);
  Terms<Eight<A>, Pass::kSums> sums;
  for (int k = 0; k < Pass::kSums; ++k) sums.of[k] = Eight<A>(A{0});
  const index_t begin = block.rows.begin, end = block.rows.end, apart = block.rows.step;
  PieceAt at = begin * of.h + in_row;
  DrawnBy now;
  if constexpr (Pass::kMasked) now = *step;
  const index_t zero = zero_of_thread(team);
  LoadedGradients<T> next{};
  if (begin < end) next = load_gradients<Pass>(of, begin + zero, at);
  int turn = 0;
  team_barrier(team);  // a team may have had another block before, and a turn of it last
  for (index_t row = begin; row < end; row += apart) {
    const PieceOfGradients<Pass, T> piece(next, of.d_y2 != nullptr);
    const PieceAt below = apart * of.h + at;
    if (row + apart < end) {
      next = load_gradients<Pass>(of, row + apart + zero, below);
    }
    // Of an RMS norm the second is what there is.
    constexpr int kMeans = Pass::kIsLayerNorm ? 2 : 1;
    Sums<A, kMeans> means;
    if (has_piece) {
      const Eight<A> g = piece.d_y * gamma;
      if constexpr (Pass::kIsLayerNorm) means.of[0] = sum_of(g);
      means.of[kMeans - 1] = sum_of(g * piece.x_hat);
    }
    means = reduce_in_turn(team, means, turn);
    turn = 1 - turn;
    for (A& mean : means.of) mean *= per_column;
    if (has_piece) {
      write_gradients<Pass>(mask, now, of, row, in_row, at, piece, gamma, means.of[0],
                            means.of[kMeans - 1], sums);
    }
    at = below;
  }
  if (!has_piece) return true;
  for (int k = 0; k < Pass::kSums; ++k) write(block.to[k], in_row, sums.of[k]);
  return true;
}

// A host has its own way.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION bool gradients_in_registers(
    const HostRow&, const DropoutMask<Accumulator<T>>&, const StepState*, Accumulator<T>,
    const BlockOfRows<Accumulator<T>, Pass::kSums>&, const NormGradients<T>&) {
  return false;
}

// The gradient of a row of y. The sum of two is stored in the place of d_x first, as a
// pass of its own would leave it.
template <class Pass, class T>
KOKKOS_FORCEINLINE_FUNCTION const T* incoming_gradient(const RowTeam& team,
                                                       const NormGradients<T>& of,
                                                       index_t row) {
  using A = Accumulator<T>;
  const T* const d_y = of.d_y + row * of.h;
  if constexpr (Pass::kMayAdd) {
    if (of.d_y2 != nullptr) {
      const T* const d_y2 = of.d_y2 + row * of.h;
      T* const sum = of.d_x + row * of.h;
      for_each_lanes(team, of.h, [=](auto j) {
        write(sum, j, read_streamed<A>(d_y, j) + read_streamed<A>(d_y2, j));
      });
      team_barrier(team);
      return sum;
    }
  }
  return d_y;
}

// What a row writes and adds to the sums, as a function of the column: no lambda, which
// compilers would call, four rows at a time, instead of putting it in its place.
template <class Pass, class T, class X>
struct GradientsOfRow {
  using A = Accumulator<T>;
  NormBackwardRow<Pass::kKind, T, X> norm;
  const T* by_pass;
  T *d_x, *d_branch;
  // The host takes four rows at a time; the next four come while these are written.
  // Behind the last row the address is never read.
  index_t next;

  template <class J, class Dropped>
  KOKKOS_FORCEINLINE_FUNCTION auto operator()(J j, const Dropped& dropped) const {
    if constexpr (!Pass::kMasked) ask_for(norm.d_y + next, j);
    if constexpr (Pass::kResidual) ask_for(by_pass + next, j);
    if constexpr (Pass::kMasked) ask_to_write(d_branch + next, j);
    const auto d_y = read<A>(norm.d_y, j);
    const auto x_hat = norm.x_hat(j);
    auto through = norm.d_x(d_y, x_hat, j);
    if constexpr (Pass::kResidual) through = through + read<A>(by_pass, j);
    if constexpr (!Pass::kMasked && !Pass::kBias) {
      write(d_x, j, through);
    } else {
      through = written<A>(d_x, j, through);
    }
    if constexpr (Pass::kMasked) through = written<A>(d_branch, j, dropped(through));
    return norm_terms<Pass>(d_y, x_hat, through);
  }
};

template <class Pass, class T, class X>
KOKKOS_FORCEINLINE_FUNCTION GradientsOfRow<Pass, T, X> gradients_of_row(
    const RowTeam& team, const NormGradients<T>& of, const X* gamma, index_t row,
    Accumulator<T> per_column) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const auto norm = norm_backward_row<Pass::kKind, T, X>(
      team, incoming_gradient<Pass>(team, of, row), of.x + row * h, gamma,
      Pass::kIsLayerNorm ? of.mean[row] : A{0}, of.rstd[row], h, per_column, [=](auto j) {
        ask_for(of.x + (row + 4) * h, j);
        if constexpr (Pass::kMasked) ask_for(of.d_y + (row + 4) * h, j);
      });
  return {norm, Pass::kResidual ? of.d_residual + row * h : nullptr, of.d_x + row * h,
          Pass::kMasked ? of.d_branch + row * h : nullptr, 4 * h};
}

}  // namespace detail

// Static, so that compilers put the bodies of its loops in their places: nothing else can
// call them.
template <class Pass, class T>
static void launch_norm_backward(const Exec& exec, const Kernel& kernel,
                                 const DropoutMask<Accumulator<T>>& mask,
                                 const StepState* state, index_t rows,
                                 const NormGradients<T>& of) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const RowBlocks blocks(rows, RowBlocks::most_whole(h));
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_held_blocks<T, kThreadsOfRows>(
      exec, kernel, blocks.count,
      ColumnsOfRows(h, of.d_y, of.x, of.gamma, of.d_residual, of.d_y2, of.d_x,
                    of.d_branch, of.gamma_sums, of.beta_sums, of.bias_sums),
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const auto sums = detail::block_of_gradients<Pass>(of, blocks, block);
        if (detail::gradients_in_registers<Pass>(team, mask, state, per_column, sums,
                                                 of)) {
          return;
        }
        with_widened<T>(
            team, h,
            [&](const auto* gamma) {
              const auto row_of = [=](const RowTeam& row_team, index_t row) {
                return detail::gradients_of_row<Pass>(row_team, of, gamma, row,
                                                      per_column);
              };
              write_and_sum_rows<Pass::kMasked>(team, mask, state, sums, row_of);
            },
            of.gamma);
      });
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORM_GRADIENTS_HPP_

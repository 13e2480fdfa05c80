// kernels/impl/norm_rows.hpp — one row of a layer normalisation, forward, and what one
// row of its backward pass needs, for the kernels that are fused with one.
//
// A host's row is in the nearest cache from one pass to the next; a GPU's threads keep
// theirs in registers, where they have few pieces of it each.
//
// Derivation: docs/math/layer_norm.md
#ifndef TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

#include <type_traits>
#include <utility>

#include "base/types.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

// A row of x that lies in memory, for layer_norm_rows(): in() makes it there, where it
// has to be made; or a GPU's thread loads what a piece of it is made of, and then makes
// the piece.
template <class T>
struct RowInMemory {
  using A = Accumulator<T>;
  using Loaded = StoredEight<T>;
  const T* x;

  KOKKOS_FORCEINLINE_FUNCTION const T* in(const RowTeam&) const { return x; }
  KOKKOS_FORCEINLINE_FUNCTION Loaded load(PieceAt at) const { return load_stored(x, at); }
  KOKKOS_FORCEINLINE_FUNCTION Eight<A> make(const Loaded& loaded, PieceAt) const {
    return numbers_of<A>(loaded);
  }
};

// What all rows of a norm have in common.
template <class T>
struct NormOfRows {
  const T* gamma;
  const T* beta;
  Accumulator<T> epsilon;
  Accumulator<T> per_column;  // 1 / h
  T* y;
  Accumulator<T>* mean;
  Accumulator<T>* rstd;

  struct Statistics {
    Accumulator<T> center, scale;
  };
  // By the sums of the differences from a rough mean, and of their squares.
  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(Accumulator<T> rough,
                                                    Accumulator<T> sum,
                                                    Accumulator<T> squares) const {
    using A = Accumulator<T>;
    const A shift = sum * per_column;
    const A about_rough = squares * per_column;
    // Rounding may leave less than nothing of a row that is constant.
    const A variance = about_rough > shift * shift ? about_rough - shift * shift : A{0};
    const A scale = kRowsByTeams ? Kokkos::rsqrt(variance + epsilon)
                                 : A{1} / Kokkos::sqrt(variance + epsilon);
    return {rough + shift, scale};
  }
};

// y = norm of x, a row that lies in cache. The mean is found roughly first; sums of the
// differences from it, which are small, then correct it and give the variance.
template <class T, class X>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_row(const RowTeam& team,
                                                const NormOfRows<T>& norm, const X* gamma,
                                                const X* beta, index_t row, index_t h,
                                                const X* in, Accumulator<T> sum_of_row) {
  using A = Accumulator<T>;
  const A rough = sum_of_row * norm.per_column;
  T* const out = norm.y + row * h;
  A sum, squares;
  sum_lanes_of_two<A>(
      team, h,
      [=](auto j, auto& d, auto& d2) {
        ask_to_write(out, j);
        d = read<A>(in, j) - rough;
        d2 = d * d;
      },
      sum, squares);
  const auto statistics = norm.statistics(rough, sum, squares);
  const A center = statistics.center, scale = statistics.scale;
  for_each_lanes(team, h, [=](auto j) {
    const auto x_hat = (read<A>(in, j) - center) * scale;
    write(out, j, x_hat * read<A>(gamma, j) + read<A>(beta, j));
  });
  norm.mean[row] = center;
  norm.rstd[row] = scale;
}

// Rows that one work item normalises: a host widens gamma and beta once for all of them.
inline constexpr index_t kNormRows = kRowsByTeams ? 1 : 8;

// Pieces of a row that a thread keeps in registers, at most: of four, 32 numbers.
inline constexpr int kHeldPieces = 4;

namespace detail {

// Where piece p of a thread is. Of 64 bits throughout, so that it is an address and a
// constant to nvcc.
KOKKOS_FORCEINLINE_FUNCTION PieceAt held_piece(const TeamRow& team, int p) {
  return {kPieceColumns * index_t{team.rank} + kPieceColumns * p * index_t{team.size}};
}

// body(p, at) for the pieces of a row of h columns that a thread has: kPieces, or, of
// some, one less.
template <int kPieces, class Body>
KOKKOS_FORCEINLINE_FUNCTION void for_each_held(const TeamRow& team, index_t h,
                                               const Body& body) {
  unrolled(std::make_integer_sequence<int, kPieces>(), [&](auto p) {
    constexpr bool kIsLast = decltype(p)::value + 1 == kPieces;
    const PieceAt at = held_piece(team, decltype(p)::value);
    if (!kIsLast || at.j < h) body(p, at);
  });
}

// y = norm of a row that its threads have in registers from the first sum to the end.
template <int kPieces, class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_held(const TeamRow& team,
                                                 const NormOfRows<T>& norm, index_t row,
                                                 index_t h, const Row& of) {
  using A = Accumulator<T>;
  typename Row::Loaded loaded[kPieces];
  Eight<A> x[kPieces];
  for_each_held<kPieces>(
      team, h, [&](auto p, PieceAt at) { loaded[decltype(p)::value] = of.load(at); });
  Sums<A, 1> first;
  for_each_held<kPieces>(team, h, [&](auto p, PieceAt at) {
    auto& to = x[decltype(p)::value];
    to = of.make(loaded[decltype(p)::value], at);
    first.of[0] += sum_of(to);
  });
  const A rough = reduce_in_turn(team, first, 0).of[0] * norm.per_column;
  // A piece ahead, since nvcc takes what is stored for what may be read next.
  StoredEight<T> gamma, beta;
  const auto load_factors = [&](PieceAt at) {
    if (at.j >= h) return;
    gamma = load_stored(norm.gamma, at);
    beta = load_stored(norm.beta, at);
  };
  load_factors(held_piece(team, 0));
  Sums<A, 2> second;
  for_each_held<kPieces>(team, h, [&](auto p, PieceAt) {
    const Eight<A> d = x[decltype(p)::value] - Eight<A>(rough);
    second.of[0] += sum_of(d);
    second.of[1] += sum_of(d * d);
  });
  second = reduce_in_turn(team, second, 1);
  const auto statistics = norm.statistics(rough, second.of[0], second.of[1]);
  const Eight<A> centers(statistics.center), scales(statistics.scale);
  T* const out = norm.y + row * h;
  for_each_held<kPieces>(team, h, [&](auto p, PieceAt at) {
    constexpr int kNext = decltype(p)::value + 1;
    const Eight<A> x_hat = (x[decltype(p)::value] - centers) * scales;
    const Eight<A> y = x_hat * numbers_of<A>(gamma) + numbers_of<A>(beta);
    if constexpr (kNext < kPieces) load_factors(held_piece(team, kNext));
    write(out, at, y);
  });
  if (team.rank == 0) {
    norm.mean[row] = statistics.center;
    norm.rstd[row] = statistics.scale;
  }
}

// False where a thread has too many pieces. Teams on a host may be smaller than thought.
template <class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION bool layer_norm_in_registers(const TeamRow& team,
                                                         const NormOfRows<T>& norm,
                                                         index_t row, index_t h,
                                                         const Row& of) {
  if (kHostExecution && h > index_t{kPieceColumns} * team.held * team.size) return false;
  static_assert(kHeldPieces == 4);
  switch (team.held) {
    case 1:
      layer_norm_held<1>(team, norm, row, h, of);
      return true;
    case 2:
      layer_norm_held<2>(team, norm, row, h, of);
      return true;
    case 3:
      layer_norm_held<3>(team, norm, row, h, of);
      return true;
    case 4:
      layer_norm_held<4>(team, norm, row, h, of);
      return true;
    default:
      return false;
  }
}

}  // namespace detail

// y = norm of x for work item `tile` of these rows, of which x_of_row(row) is like
// RowInMemory.
template <class T, class XOfRow>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_rows(const HostRow& team,
                                                 const NormOfRows<T>& norm, index_t tile,
                                                 index_t rows, index_t h,
                                                 const XOfRow& x_of_row) {
  using A = Accumulator<T>;
  const index_t begin = tile * kNormRows;
  const index_t end = begin + tile_width(rows, begin, kNormRows);
  with_widened<T>(
      team, h,
      [&](const auto* gamma, const auto* beta) {
        using X = std::remove_cv_t<std::remove_pointer_t<decltype(gamma)>>;
        for (index_t row = begin; row < end; ++row) {
          const T* const in = x_of_row(row).in(team);
          if constexpr (std::is_same_v<X, T>) {
            const A sum =
                sum_lanes<A>(team, h, [=](auto j) { return read_streamed<A>(in, j); });
            layer_norm_row<T, X>(team, norm, gamma, beta, row, h, in, sum);
          } else {
            X wide[kWideColumns];
            const A sum = sum_lanes<A>(team, h, [&](auto j) {
              return written<A>(wide, j, read_streamed<A>(in, j));
            });
            layer_norm_row<T, X>(team, norm, gamma, beta, row, h, wide, sum);
          }
        }
      },
      norm.gamma, norm.beta);
}
template <class T, class XOfRow>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_rows(const TeamRow& team,
                                                 const NormOfRows<T>& norm, index_t row,
                                                 index_t, index_t h,
                                                 const XOfRow& x_of_row) {
  using A = Accumulator<T>;
  const auto of = x_of_row(row);
  if (detail::layer_norm_in_registers(team, norm, row, h, of)) return;
  const T* const in = of.in(team);
  const A sum = sum_lanes<A>(team, h, [=](auto j) { return read<A>(in, j); });
  layer_norm_row<T, T>(team, norm, norm.gamma, norm.beta, row, h, in, sum);
}

// Pointers of the backward pass of a norm. The bias and d_branch are of what is added
// before it (residual_norm.hpp); d_residual may be null.
template <class T>
struct NormGradients {
  using A = Accumulator<T>;
  const T *d_y, *x, *gamma, *d_residual;
  const A *mean, *rstd;
  T *d_x, *d_branch;
  A *gamma_sums, *beta_sums, *bias_sums;
  index_t h;
};

// One row of the backward pass: d_x at column j is scale (g - mean_g - x_hat mean_gx),
// with g = d_y gamma and the means of g and of g x_hat over the row. Gamma may have been
// widened.
template <class T, class X>
struct NormBackwardRow {
  using A = Accumulator<T>;
  const T* d_y;
  const T* x;
  const X* gamma;
  A center, scale, mean_g, mean_gx;

  template <class J>
  KOKKOS_FORCEINLINE_FUNCTION auto x_hat(J j) const {
    return (read<A>(x, j) - center) * scale;
  }
  template <class J, class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value d_x(const Value& d_y_j, const Value& x_hat_j,
                                        J j) const {
    const Value g = d_y_j * read<A>(gamma, j);
    return scale * (g - mean_g - x_hat_j * mean_gx);
  }
};

// ask(j): for what is read of later rows.
template <class T, class X, class Ask>
KOKKOS_FORCEINLINE_FUNCTION NormBackwardRow<T, X> norm_backward_row(
    const RowTeam& team, const T* d_y, const T* x, const X* gamma, Accumulator<T> center,
    Accumulator<T> scale, index_t h, Accumulator<T> per_column, const Ask& ask) {
  using A = Accumulator<T>;
  A sum_g, sum_gx;
  sum_lanes_of_two<A>(
      team, h,
      [=](auto j, auto& g, auto& gx) {
        ask(j);
        g = read<A>(d_y, j) * read<A>(gamma, j);
        gx = g * ((read<A>(x, j) - center) * scale);
      },
      sum_g, sum_gx);
  return {d_y, x, gamma, center, scale, sum_g * per_column, sum_gx * per_column};
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

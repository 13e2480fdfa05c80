// kernels/impl/norm_rows.hpp — one row of a norm, forward, and what one row of its
// backward pass needs, for the kernels that are fused with one.
//
// A host's row is in the nearest cache from one pass to the next; a GPU's threads keep
// theirs in registers, where they have few pieces of it each.
//
// Derivation: docs/math/norm.md
#ifndef TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

#include <type_traits>
#include <utility>

#include "base/types.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/norm.hpp"

namespace trireme::kernels {

// A row of x that lies in memory, for norm_rows(): in() makes it there, where it
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
template <NormKind kKind, class T>
struct NormOfRows {
  using A = Accumulator<T>;
  const T* gamma;
  const T* beta;  // of a layer norm, as mean is
  A epsilon;
  A per_column;  // 1 / h
  T* y;
  A* mean;
  A* rstd;

  struct Statistics {
    A center, scale;
  };
  // Of a layer norm: by the sums of the differences from a rough mean, and of their
  // squares.
  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(A rough, A sum, A squares) const {
    const A shift = sum * per_column;
    const A about_rough = squares * per_column;
    // Rounding may leave less than nothing of a row that is constant.
    const A variance = about_rough > shift * shift ? about_rough - shift * shift : A{0};
    return {rough + shift, scale_of(variance)};
  }
  // Of an RMS norm: by the sum of squares.
  KOKKOS_FORCEINLINE_FUNCTION Statistics statistics(A squares) const {
    return {A{0}, scale_of(squares * per_column)};
  }
  KOKKOS_FORCEINLINE_FUNCTION void keep(index_t row, const Statistics& statistics) const {
    if constexpr (kKind == NormKind::layernorm) mean[row] = statistics.center;
    rstd[row] = statistics.scale;
  }

 private:
  KOKKOS_FORCEINLINE_FUNCTION A scale_of(A square) const {
    return kRowsByTeams ? Kokkos::rsqrt(square + epsilon)
                        : A{1} / Kokkos::sqrt(square + epsilon);
  }
};

template <NormKind kKind, class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION Value normed(const Value& x, A center, A scale) {
  if constexpr (kKind == NormKind::layernorm) {
    return (x - Value(center)) * Value(scale);
  } else {
    return x * Value(scale);
  }
}

// What the first sum over a row is of: of a layer norm the values, of an RMS norm their
// squares.
template <NormKind kKind, class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION A first_sum(const RowTeam& team, index_t h,
                                        const Value& value) {
  if constexpr (kKind == NormKind::layernorm) {
    return sum_lanes<A>(team, h, value);
  } else {
    return sum_lanes<A>(team, h, [&](auto j) {
      const auto x = value(j);
      return x * x;
    });
  }
}

// The statistics of a row that lies in cache, of which the first sum is known. The mean
// of a layer norm is found roughly first; sums of the differences from it, which are
// small, then correct it and give the variance.
template <NormKind kKind, class T, class X>
KOKKOS_FORCEINLINE_FUNCTION auto row_statistics(const RowTeam& team,
                                                const NormOfRows<kKind, T>& norm, T* out,
                                                index_t h, const X* in,
                                                Accumulator<T> first) {
  using A = Accumulator<T>;
  if constexpr (kKind == NormKind::rms) {
    return norm.statistics(first);
  } else {
    const A rough = first * norm.per_column;
    A sum, squares;
    sum_lanes_of_two<A>(
        team, h,
        [=](auto j, auto& d, auto& d2) {
          ask_to_write(out, j);
          d = read<A>(in, j) - rough;
          d2 = d * d;
        },
        sum, squares);
    return norm.statistics(rough, sum, squares);
  }
}

// y = norm of x, a row that lies in cache.
template <NormKind kKind, class T, class X>
KOKKOS_FORCEINLINE_FUNCTION void norm_row(const RowTeam& team,
                                          const NormOfRows<kKind, T>& norm, index_t row,
                                          index_t h, const X* in, Accumulator<T> first,
                                          const X* gamma, const X* beta) {
  using A = Accumulator<T>;
  T* const out = norm.y + row * h;
  const auto statistics = row_statistics(team, norm, out, h, in, first);
  const A center = statistics.center, scale = statistics.scale;
  for_each_lanes(team, h, [=](auto j) {
    auto y = normed<kKind>(read<A>(in, j), center, scale) * read<A>(gamma, j);
    if constexpr (kKind == NormKind::layernorm) y = y + read<A>(beta, j);
    write(out, j, y);
  });
  norm.keep(row, statistics);
}

// Of Views as norm_forward() has them.
template <NormKind kKind, class T>
NormOfRows<kKind, T> norm_of_rows(const char* kernel, index_t rows, index_t h,
                                  View1<const T> gamma, View1<const T> beta,
                                  double epsilon, View2<T> y, View1<Accumulator<T>> mean,
                                  View1<Accumulator<T>> rstd) {
  using A = Accumulator<T>;
  constexpr bool kIsLayerNorm = kKind == NormKind::layernorm;
  require_extents(kernel, "y", y, rows, h);
  require_extent(kernel, "gamma", gamma, h);
  require_extent(kernel, "beta", beta, kIsLayerNorm ? h : 0);
  require_extent(kernel, "mean", mean, kIsLayerNorm ? rows : 0);
  require_extent(kernel, "rstd", rstd, rows);
  return {gamma.data(),
          beta.data(),
          static_cast<A>(epsilon),
          static_cast<A>(1.0 / static_cast<double>(h)),
          y.data(),
          mean.data(),
          rstd.data()};
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
template <int kPieces, NormKind kKind, class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION void norm_held(const TeamRow& team,
                                           const NormOfRows<kKind, T>& norm, index_t row,
                                           index_t h, const Row& of) {
  using A = Accumulator<T>;
  constexpr bool kIsLayerNorm = kKind == NormKind::layernorm;
  typename Row::Loaded loaded[kPieces];
  Eight<A> x[kPieces];
  for_each_held<kPieces>(
      team, h, [&](auto p, PieceAt at) { loaded[decltype(p)::value] = of.load(at); });
  Sums<A, 1> first;
  for_each_held<kPieces>(team, h, [&](auto p, PieceAt at) {
    auto& to = x[decltype(p)::value];
    to = of.make(loaded[decltype(p)::value], at);
    first.of[0] += kIsLayerNorm ? sum_of(to) : sum_of(to * to);
  });
  first = reduce_in_turn(team, first, 0);
  // A piece ahead, since nvcc takes what is stored for what may be read next.
  StoredEight<T> gamma, beta;
  const auto load_factors = [&](PieceAt at) {
    if (at.j >= h) return;
    gamma = load_stored(norm.gamma, at);
    if constexpr (kIsLayerNorm) beta = load_stored(norm.beta, at);
  };
  load_factors(held_piece(team, 0));
  const auto statistics = [&] {
    if constexpr (kIsLayerNorm) {
      const A rough = first.of[0] * norm.per_column;
      Sums<A, 2> second;
      for_each_held<kPieces>(team, h, [&](auto p, PieceAt) {
        const Eight<A> d = x[decltype(p)::value] - Eight<A>(rough);
        second.of[0] += sum_of(d);
        second.of[1] += sum_of(d * d);
      });
      second = reduce_in_turn(team, second, 1);
      return norm.statistics(rough, second.of[0], second.of[1]);
    } else {
      return norm.statistics(first.of[0]);
    }
  }();
  T* const out = norm.y + row * h;
  for_each_held<kPieces>(team, h, [&](auto p, PieceAt at) {
    constexpr int kNext = decltype(p)::value + 1;
    Eight<A> y =
        normed<kKind>(x[decltype(p)::value], statistics.center, statistics.scale) *
        numbers_of<A>(gamma);
    if constexpr (kIsLayerNorm) y = y + numbers_of<A>(beta);
    if constexpr (kNext < kPieces) load_factors(held_piece(team, kNext));
    write(out, at, y);
  });
  if (team.rank == 0) norm.keep(row, statistics);
}

// False where a thread has too many pieces. Teams on a host may be smaller than thought.
template <NormKind kKind, class T, class Row>
KOKKOS_FORCEINLINE_FUNCTION bool norm_in_registers(const TeamRow& team,
                                                   const NormOfRows<kKind, T>& norm,
                                                   index_t row, index_t h,
                                                   const Row& of) {
  if (kHostExecution && h > index_t{kPieceColumns} * team.held * team.size) return false;
  static_assert(kHeldPieces == 4);
  switch (team.held) {
    case 1:
      norm_held<1>(team, norm, row, h, of);
      return true;
    case 2:
      norm_held<2>(team, norm, row, h, of);
      return true;
    case 3:
      norm_held<3>(team, norm, row, h, of);
      return true;
    case 4:
      norm_held<4>(team, norm, row, h, of);
      return true;
    default:
      return false;
  }
}

// body(gamma, beta), widened, of which the latter is null for an RMS norm.
template <NormKind kKind, class T, class Body>
KOKKOS_FORCEINLINE_FUNCTION void with_factors(const RowTeam& team,
                                              const NormOfRows<kKind, T>& norm, index_t h,
                                              const Body& body) {
  if constexpr (kKind == NormKind::layernorm) {
    with_widened<T>(team, h, body, norm.gamma, norm.beta);
  } else {
    with_widened<T>(
        team, h, [&](const auto* gamma) { body(gamma, decltype(gamma){nullptr}); },
        norm.gamma);
  }
}

}  // namespace detail

// y = norm of x for work item `tile` of these rows, of which x_of_row(row) is like
// RowInMemory.
template <NormKind kKind, class T, class XOfRow>
KOKKOS_FORCEINLINE_FUNCTION void norm_rows(const HostRow& team,
                                           const NormOfRows<kKind, T>& norm, index_t tile,
                                           index_t rows, index_t h,
                                           const XOfRow& x_of_row) {
  using A = Accumulator<T>;
  const index_t begin = tile * kNormRows;
  const index_t end = begin + tile_width(rows, begin, kNormRows);
  detail::with_factors(team, norm, h, [&](const auto* gamma, const auto* beta) {
    using X = std::remove_cv_t<std::remove_pointer_t<decltype(gamma)>>;
    for (index_t row = begin; row < end; ++row) {
      const T* const in = x_of_row(row).in(team);
      const T* const out = norm.y + row * h;
      const auto x_at = [=](auto j) {
        // An RMS norm has no second sum, at which a layer norm asks.
        if constexpr (kKind == NormKind::rms) ask_to_write(out, j);
        return read_streamed<A>(in, j);
      };
      if constexpr (std::is_same_v<X, T>) {
        const A first = first_sum<kKind, A>(team, h, x_at);
        norm_row(team, norm, row, h, in, first, gamma, beta);
      } else {
        X wide[kWideColumns];
        const A first = first_sum<kKind, A>(
            team, h, [&](auto j) { return written<A>(wide, j, x_at(j)); });
        norm_row(team, norm, row, h, wide, first, gamma, beta);
      }
    }
  });
}
template <NormKind kKind, class T, class XOfRow>
KOKKOS_FORCEINLINE_FUNCTION void norm_rows(const TeamRow& team,
                                           const NormOfRows<kKind, T>& norm, index_t row,
                                           index_t, index_t h, const XOfRow& x_of_row) {
  using A = Accumulator<T>;
  const auto of = x_of_row(row);
  if (detail::norm_in_registers(team, norm, row, h, of)) return;
  const T* const in = of.in(team);
  const A first = first_sum<kKind, A>(team, h, [=](auto j) { return read<A>(in, j); });
  norm_row(team, norm, row, h, in, first, norm.gamma, norm.beta);
}

template <NormKind kKind, class A, class Value>
KOKKOS_FORCEINLINE_FUNCTION Value d_x_of(const Value& g, const Value& x_hat, A scale,
                                         A mean_g, A mean_gx) {
  const Value without_mean = kKind == NormKind::layernorm ? g - Value(mean_g) : g;
  return Value(scale) * (without_mean - x_hat * Value(mean_gx));
}

// One row of the backward pass: d_x at column j is scale (g - mean_g - x_hat mean_gx),
// with g = d_y gamma and the means of g, which an RMS norm has not, and of g x_hat over
// the row. Gamma may have been widened.
template <NormKind kKind, class T, class X>
struct NormBackwardRow {
  using A = Accumulator<T>;
  const T* d_y;
  const T* x;
  const X* gamma;
  A center, scale, mean_g, mean_gx;

  template <class J>
  KOKKOS_FORCEINLINE_FUNCTION auto x_hat(J j) const {
    return normed<kKind>(read<A>(x, j), center, scale);
  }
  template <class J, class Value>
  KOKKOS_FORCEINLINE_FUNCTION Value d_x(const Value& d_y_j, const Value& x_hat_j,
                                        J j) const {
    const Value g = d_y_j * read<A>(gamma, j);
    return d_x_of<kKind>(g, x_hat_j, scale, mean_g, mean_gx);
  }
};

// ask(j): for what is read of later rows.
template <NormKind kKind, class T, class X, class Ask>
KOKKOS_FORCEINLINE_FUNCTION NormBackwardRow<kKind, T, X> norm_backward_row(
    const RowTeam& team, const T* d_y, const T* x, const X* gamma, Accumulator<T> center,
    Accumulator<T> scale, index_t h, Accumulator<T> per_column, const Ask& ask) {
  using A = Accumulator<T>;
  A sum_g{0}, sum_gx;
  if constexpr (kKind == NormKind::layernorm) {
    sum_lanes_of_two<A>(
        team, h,
        [=](auto j, auto& g, auto& gx) {
          ask(j);
          g = read<A>(d_y, j) * read<A>(gamma, j);
          gx = g * normed<kKind>(read<A>(x, j), center, scale);
        },
        sum_g, sum_gx);
  } else {
    sum_gx = sum_lanes<A>(team, h, [=](auto j) {
      ask(j);
      return read<A>(d_y, j) * read<A>(gamma, j) *
             normed<kKind>(read<A>(x, j), center, scale);
    });
  }
  return {d_y, x, gamma, center, scale, sum_g * per_column, sum_gx * per_column};
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

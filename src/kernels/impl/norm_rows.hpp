// kernels/impl/norm_rows.hpp — one row of a layer normalisation, forward, and what one
// row of its backward pass needs, for the kernels that are fused with one.
//
// Derivation: docs/math/layer_norm.md
#ifndef TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

#include <type_traits>

#include "base/types.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

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
  const A shift = sum * norm.per_column;
  const A center = rough + shift;
  const A about_rough = squares * norm.per_column;
  // Rounding may leave less than nothing of a row that is constant.
  const A variance = about_rough > shift * shift ? about_rough - shift * shift : A{0};
  const A scale = A{1} / Kokkos::sqrt(variance + norm.epsilon);
  for_each_lanes(team, h, [=](auto j) {
    const auto x_hat = (read<A>(in, j) - center) * scale;
    write(out, j, x_hat * read<A>(gamma, j) + read<A>(beta, j));
  });
  norm.mean[row] = center;
  norm.rstd[row] = scale;
}

// Rows that one work item normalises: a host widens gamma and beta once for all of them.
inline constexpr index_t kNormRows = kRowsByTeams ? 1 : 8;

// y = norm of x for rows of x, which x_of_row(row) returns when they are in cache.
template <class T, class XOfRow>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_rows(const RowTeam& team,
                                                 const NormOfRows<T>& norm, index_t begin,
                                                 index_t end, index_t h,
                                                 const XOfRow& x_of_row) {
  using A = Accumulator<T>;
  with_widened<T>(
      team, h,
      [&](const auto* gamma, const auto* beta) {
        using X = std::remove_cv_t<std::remove_pointer_t<decltype(gamma)>>;
        for (index_t row = begin; row < end; ++row) {
          const T* const in = x_of_row(row);
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

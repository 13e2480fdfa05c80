// kernels/impl/norm_rows.hpp — one row of a layer normalisation, forward, and what one
// row of its backward pass needs, for the kernels that are fused with one.
//
// Derivation: docs/math/layer_norm.md
#ifndef TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_
#define TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

#include "base/types.hpp"
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
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void layer_norm_row(const RowTeam& team,
                                                const NormOfRows<T>& norm, index_t row,
                                                index_t h, const T* in) {
  using A = Accumulator<T>;
  const A rough =
      sum_columns<A>(team, h, [=](index_t j) { return static_cast<A>(in[j]); }) *
      norm.per_column;
  A sum, squares;
  sum_columns_of_two<A>(
      team, h,
      [=](index_t j, A& d, A& d2) {
        d = static_cast<A>(in[j]) - rough;
        d2 = d * d;
      },
      sum, squares);
  const A shift = sum * norm.per_column;
  const A center = rough + shift;
  const A about_rough = squares * norm.per_column;
  // Rounding may leave less than nothing of a row that is constant.
  const A variance = about_rough > shift * shift ? about_rough - shift * shift : A{0};
  const A scale = A{1} / Kokkos::sqrt(variance + norm.epsilon);
  const T* const gamma = norm.gamma;
  const T* const beta = norm.beta;
  T* const out = norm.y + row * h;
  for_each_column(team, h, [=](index_t j) {
    const A x_hat = (static_cast<A>(in[j]) - center) * scale;
    out[j] = static_cast<T>(x_hat * static_cast<A>(gamma[j]) + static_cast<A>(beta[j]));
  });
  norm.mean[row] = center;
  norm.rstd[row] = scale;
}

// One row of the backward pass: d_x at column j is scale (g - mean_g - x_hat mean_gx),
// with g = d_y gamma and the means of g and of g x_hat over the row.
template <class T>
struct NormBackwardRow {
  using A = Accumulator<T>;
  const T* d_y;
  const T* x;
  const T* gamma;
  A center, scale, mean_g, mean_gx;

  KOKKOS_FORCEINLINE_FUNCTION A x_hat(index_t j) const {
    return (static_cast<A>(x[j]) - center) * scale;
  }
  KOKKOS_FORCEINLINE_FUNCTION A d_x(A d_y_j, A x_hat_j, index_t j) const {
    const A g = d_y_j * static_cast<A>(gamma[j]);
    return scale * (g - mean_g - x_hat_j * mean_gx);
  }
};

template <class T>
KOKKOS_FORCEINLINE_FUNCTION NormBackwardRow<T> norm_backward_row(
    const RowTeam& team, const T* d_y, const T* x, const T* gamma, Accumulator<T> center,
    Accumulator<T> scale, index_t h, Accumulator<T> per_column) {
  using A = Accumulator<T>;
  A sum_g, sum_gx;
  sum_columns_of_two<A>(
      team, h,
      [=](index_t j, A& g, A& gx) {
        g = static_cast<A>(d_y[j]) * static_cast<A>(gamma[j]);
        gx = g * ((static_cast<A>(x[j]) - center) * scale);
      },
      sum_g, sum_gx);
  return {d_y, x, gamma, center, scale, sum_g * per_column, sum_gx * per_column};
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_NORM_ROWS_HPP_

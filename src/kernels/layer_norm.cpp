// kernels/layer_norm.cpp — layer normalisation, forward and backward.
//
// Mean first, corrected by the mean of the differences from it, then the variance about
// it, over a row that lies in cache: E[x^2] - E[x]^2 cancels where |mean| >> deviation.
// Derivation: docs/math/layer_norm.md
#include "kernels/layer_norm.hpp"

#include "base/plural.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

template <class T>
void layer_norm_forward(const Exec& exec, View2<const T> x, View1<const T> gamma,
                        View1<const T> beta, double epsilon, View2<T> y,
                        View1<Accumulator<T>> mean, View1<Accumulator<T>> rstd) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  require_extents("layer_norm_forward", "y", y, rows, h);
  require_extent("layer_norm_forward", "gamma", gamma, h);
  require_extent("layer_norm_forward", "beta", beta, h);
  require_extent("layer_norm_forward", "mean", mean, rows);
  require_extent("layer_norm_forward", "rstd", rstd, rows);

  const T* const x_data = x.data();
  const T* const gamma_data = gamma.data();
  const T* const beta_data = beta.data();
  T* const y_data = y.data();
  A* const mean_data = mean.data();
  A* const rstd_data = rstd.data();
  const A eps = static_cast<A>(epsilon);
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_forward",
       {.bytes = bytes_of(x, gamma, beta, y, mean, rstd)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = x_data + row * h;
        T* const out = y_data + row * h;
        const A rough =
            sum_columns<A>(team, h, [=](index_t j) { return static_cast<A>(in[j]); }) *
            per_column;
        // The sum of numbers far from zero has rounded; that of the small differences
        // has not, to speak of.
        const A center = rough + sum_columns<A>(team, h, [=](index_t j) {
                                   return static_cast<A>(in[j]) - rough;
                                 }) * per_column;
        const A variance = sum_columns<A>(team, h,
                                          [=](index_t j) {
                                            const A d = static_cast<A>(in[j]) - center;
                                            return d * d;
                                          }) *
                           per_column;
        const A scale = A{1} / Kokkos::sqrt(variance + eps);
        for_each_column(team, h, [=](index_t j) {
          const A x_hat = (static_cast<A>(in[j]) - center) * scale;
          out[j] = static_cast<T>(x_hat * static_cast<A>(gamma_data[j]) +
                                  static_cast<A>(beta_data[j]));
        });
        mean_data[row] = center;
        rstd_data[row] = scale;
      });
}

template <class T>
void layer_norm_backward_input(const Exec& exec, View2<const T> d_y, View2<const T> x,
                               View1<const T> gamma, View1<const Accumulator<T>> mean,
                               View1<const Accumulator<T>> rstd,
                               View2<const T> d_residual, View2<T> d_x) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  require_extents("layer_norm_backward_input", "d_y", d_y, rows, h);
  require_extents("layer_norm_backward_input", "d_x", d_x, rows, h);
  require_extent("layer_norm_backward_input", "gamma", gamma, h);
  require_extent("layer_norm_backward_input", "mean", mean, rows);
  require_extent("layer_norm_backward_input", "rstd", rstd, rows);
  if (d_residual.extent(0) != 0) {
    require_extents("layer_norm_backward_input", "d_residual", d_residual, rows, h);
  }

  const T* const d_y_data = d_y.data();
  const T* const x_data = x.data();
  const T* const gamma_data = gamma.data();
  const T* const residual_data = d_residual.data();
  T* const d_x_data = d_x.data();
  const A* const mean_data = mean.data();
  const A* const rstd_data = rstd.data();
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_backward_input",
       {.bytes = bytes_of(d_y, x, gamma, mean, rstd, d_residual, d_x)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        const T* const in = x_data + row * h;
        const T* const d_out = d_y_data + row * h;
        T* const d_in = d_x_data + row * h;
        const A center = mean_data[row];
        const A scale = rstd_data[row];
        A sum_g, sum_gx;
        sum_columns_of_two<A>(
            team, h,
            [=](index_t j, A& g, A& gx) {
              g = static_cast<A>(d_out[j]) * static_cast<A>(gamma_data[j]);
              gx = g * ((static_cast<A>(in[j]) - center) * scale);
            },
            sum_g, sum_gx);
        const A mean_g = sum_g * per_column, mean_gx = sum_gx * per_column;
        const auto through_norm = [=](index_t j) {
          const A g = static_cast<A>(d_out[j]) * static_cast<A>(gamma_data[j]);
          const A x_hat = (static_cast<A>(in[j]) - center) * scale;
          return scale * (g - mean_g - x_hat * mean_gx);
        };
        if (residual_data != nullptr) {
          const T* const by_pass = residual_data + row * h;
          for_each_column(team, h, [=](index_t j) {
            d_in[j] = static_cast<T>(through_norm(j) + static_cast<A>(by_pass[j]));
          });
        } else {
          for_each_column(team, h,
                          [=](index_t j) { d_in[j] = static_cast<T>(through_norm(j)); });
        }
      });
}

index_t layer_norm_scratch_elements(index_t h) {
  return 2 * RowBlocks::kMaxBlocks * h;
}

namespace {

// d_gamma += and d_beta += the sums of all blocks of rows, (blocks, 2, h), in their
// order.
template <class A>
void combine_blocks(const Exec& exec, View3<A> sums, Accumulate accumulate,
                    View1<A> d_gamma, View1<A> d_beta) {
  const auto blocks = static_cast<index_t>(sums.extent(0));
  const auto h = static_cast<index_t>(sums.extent(2));
  const A* const partial = sums.data();
  A* const d_gamma_data = d_gamma.data();
  A* const d_beta_data = d_beta.data();
  const bool adds = accumulate == Accumulate::yes;
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_backward_weight[combine]",
       {.bytes =
            bytes_of(sums, d_gamma, d_beta) + (adds ? bytes_of(d_gamma, d_beta) : 0)}},
      tiles_of(h, kCombineTile), KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        const index_t column = tile * kCombineTile;
        const index_t width = tile_width(h, column, kCombineTile);
        combine_rows(team, adds, blocks, column, width, d_gamma_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * 2 * h;
                       return [=](index_t j) { return row[j]; };
                     });
        combine_rows(team, adds, blocks, column, width, d_beta_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * 2 * h + h;
                       return [=](index_t j) { return row[j]; };
                     });
      });
}

}  // namespace

template <class T>
void layer_norm_backward_weight(const Exec& exec, View2<const T> d_y, View2<const T> x,
                                View1<const Accumulator<T>> mean,
                                View1<const Accumulator<T>> rstd,
                                View1<Accumulator<T>> scratch, Accumulate accumulate,
                                View1<Accumulator<T>> d_gamma,
                                View1<Accumulator<T>> d_beta) {
  using A = Accumulator<T>;
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  require_extents("layer_norm_backward_weight", "d_y", d_y, rows, h);
  require_extent("layer_norm_backward_weight", "mean", mean, rows);
  require_extent("layer_norm_backward_weight", "rstd", rstd, rows);
  require_extent("layer_norm_backward_weight", "d_gamma", d_gamma, h);
  require_extent("layer_norm_backward_weight", "d_beta", d_beta, h);
  TRIREME_REQUIRE(
      static_cast<index_t>(scratch.extent(0)) >= layer_norm_scratch_elements(h),
      "kernels::layer_norm_backward_weight: scratch has {}, needs {}",
      format_plural(scratch.extent(0), "element"), layer_norm_scratch_elements(h));

  const T* const d_y_data = d_y.data();
  const T* const x_data = x.data();
  const A* const mean_data = mean.data();
  const A* const rstd_data = rstd.data();
  const RowBlocks blocks(rows);
  const View3<A> sums(scratch.data(), extent(blocks.count), 2, extent(h));
  A* const partial = sums.data();
  const index_t tiles = tiles_of(h, kColumnTile);
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_backward_weight[blocks]",
       {.bytes = bytes_of(d_y, x, mean, rstd, sums)}},
      blocks.count * tiles, KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * kColumnTile;
        const index_t width = tile_width(h, column, kColumnTile);
        A* const to = partial + block * 2 * h + column;
        sum_block(team, blocks.begin(block), blocks.begin(block + 1), column, width, to,
                  [=](index_t row) {
                    const A center = mean_data[row];
                    const A scale = rstd_data[row];
                    const T* const in = x_data + row * h;
                    const T* const d_out = d_y_data + row * h;
                    return [=](index_t j) {
                      return static_cast<A>(d_out[j]) *
                             ((static_cast<A>(in[j]) - center) * scale);
                    };
                  });
        sum_block(team, blocks.begin(block), blocks.begin(block + 1), column, width,
                  to + h, [=](index_t row) {
                    const T* const d_out = d_y_data + row * h;
                    return [=](index_t j) { return static_cast<A>(d_out[j]); };
                  });
      });

  combine_blocks<A>(exec, sums, accumulate, d_gamma, d_beta);
}

#define TRIREME_INSTANTIATE(T)                                                  \
  template decltype(layer_norm_forward<T>) layer_norm_forward<T>;               \
  template decltype(layer_norm_backward_input<T>) layer_norm_backward_input<T>; \
  template decltype(layer_norm_backward_weight<T>) layer_norm_backward_weight<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

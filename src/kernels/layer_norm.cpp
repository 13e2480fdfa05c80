// kernels/layer_norm.cpp — layer normalisation, forward and backward.
//
// A row lies in the nearest cache while it is summed twice and written once
// (impl/norm_rows.hpp). Backward, the sums over rows are left by blocks while d_x is
// written (impl/column_sums.hpp); the passes for one of the two alone are the plain way.
// Derivation: docs/math/layer_norm.md
#include "kernels/layer_norm.hpp"

#include "base/plural.hpp"
#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_gradients.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

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
  const NormOfRows<T> norm{gamma.data(),
                           beta.data(),
                           static_cast<A>(epsilon),
                           static_cast<A>(1.0 / static_cast<double>(h)),
                           y.data(),
                           mean.data(),
                           rstd.data()};
  launch_held_rows<T, kHeldPieces>(
      exec,
      {"trireme::kernels::layer_norm_forward",
       {.bytes = bytes_of(x, gamma, beta, y, mean, rstd)}},
      tiles_of(rows, kNormRows), ColumnsOfRows(h, x_data, norm.gamma, norm.beta, norm.y),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        layer_norm_rows<T>(team, norm, tile, rows, h,
                           [=](index_t row) { return RowInMemory<T>{x_data + row * h}; });
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
      rows, ColumnsOfRows(h, d_y_data, x_data, gamma_data, residual_data, d_x_data),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        T* const d_in = d_x_data + row * h;
        const T* const by_pass =
            residual_data == nullptr ? nullptr : residual_data + row * h;
        const NormBackwardRow<T, T> norm = norm_backward_row<T, T>(
            team, d_y_data + row * h, x_data + row * h, gamma_data, mean_data[row],
            rstd_data[row], h, per_column, [](auto) {});
        for_each_lanes(team, h, [=](auto j) {
          auto sum = norm.d_x(read<A>(norm.d_y, j), norm.x_hat(j), j);
          if (by_pass != nullptr) sum = sum + read<A>(by_pass, j);
          write(d_in, j, sum);
        });
      });
}

namespace {

// What a row writes and adds to the sums, as a function of the column.
template <bool kResidual, class T, class X>
KOKKOS_FORCEINLINE_FUNCTION auto layer_norm_backward_row(const RowTeam& team,
                                                         const NormGradients<T>& of,
                                                         const X* gamma, index_t row,
                                                         Accumulator<T> per_column) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const NormBackwardRow<T, X> norm = norm_backward_row<T, X>(
      team, of.d_y + row * h, of.x + row * h, gamma, of.mean[row], of.rstd[row], h,
      per_column, [=](auto j) { ask_for(of.x + (row + 4) * h, j); });
  const T* const by_pass = kResidual ? of.d_residual + row * h : nullptr;
  T* const d_x = of.d_x + row * h;
  // The host takes four rows at a time; the next four come while these are written.
  // Behind the last row the address is never read.
  const index_t next = 4 * h;
  return [=](auto j, const auto&) {
    ask_for(norm.d_y + next, j);
    if constexpr (kResidual) ask_for(by_pass + next, j);
    const auto d_y = read<A>(norm.d_y, j);
    const auto x_hat = norm.x_hat(j);
    auto sum = norm.d_x(d_y, x_hat, j);
    if constexpr (kResidual) sum = sum + read<A>(by_pass, j);
    write(d_x, j, sum);
    return terms_of(d_y * x_hat, d_y);
  };
}

template <bool kResidual, class T>
void launch_layer_norm_backward(const Exec& exec, const Kernel& kernel, index_t rows,
                                const NormGradients<T>& of) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const RowBlocks blocks(rows, RowBlocks::most_whole(h));
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_held_blocks<T, kThreadsOfRows>(
      exec, kernel, blocks.count,
      ColumnsOfRows(h, of.d_y, of.x, of.gamma, of.d_residual, of.d_x, of.gamma_sums,
                    of.beta_sums),
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const BlockOfRows<A, 2> sums{
            blocks.of(block), h, {of.gamma_sums + block * h, of.beta_sums + block * h}};
        if (norm_gradients_in_registers<kResidual, false>(team, DropoutMask<A>(), nullptr,
                                                          per_column, sums, of)) {
          return;
        }
        with_widened<T>(
            team, h,
            [&](const auto* gamma) {
              const auto row_of = [=](const RowTeam& row_team, index_t row) {
                return layer_norm_backward_row<kResidual>(row_team, of, gamma, row,
                                                          per_column);
              };
              write_and_sum_rows(team, sums, row_of);
            },
            of.gamma);
      });
}

}  // namespace

template <class T>
void layer_norm_backward(const Exec& exec, View2<const T> d_y, View2<const T> x,
                         View1<const T> gamma, View1<const Accumulator<T>> mean,
                         View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                         View2<T> d_x, const NormPartials<Accumulator<T>>& partials) {
  constexpr const char* kName = "layer_norm_backward";
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const bool has_residual = d_residual.extent(0) != 0;
  require_extents(kName, "d_y", d_y, rows, h);
  require_extent(kName, "gamma", gamma, h);
  require_extent(kName, "mean", mean, rows);
  require_extent(kName, "rstd", rstd, rows);
  if (has_residual) require_extents(kName, "d_residual", d_residual, rows, h);
  require_extents(kName, "d_x", d_x, rows, h);
  require_extents(kName, "gamma's partials", partials.gamma, partial_count(rows, h), h);
  require_extents(kName, "beta's partials", partials.beta, partial_count(rows, h), h);

  const Kernel kernel{"trireme::kernels::layer_norm_backward",
                      {.bytes = bytes_of(d_y, x, gamma, mean, rstd, d_residual, d_x,
                                         partials.gamma, partials.beta)}};
  const NormGradients<T> of{d_y.data(),           x.data(),    gamma.data(),
                            d_residual.data(),    mean.data(), rstd.data(),
                            d_x.data(),           nullptr,     partials.gamma.data(),
                            partials.beta.data(), nullptr,     h};
  if (has_residual) {
    launch_layer_norm_backward<true, T>(exec, kernel, rows, of);
  } else {
    launch_layer_norm_backward<false, T>(exec, kernel, rows, of);
  }
}

index_t layer_norm_scratch_elements(index_t h) {
  return 2 * RowBlocks::most_tiled(h) * h;
}

namespace {

// d_gamma += and d_beta += the sums of all blocks of rows, (blocks, 2, h), in their
// order.
template <class A, class G>
void combine_blocks(const Exec& exec, View3<A> sums, Accumulate accumulate,
                    View1<G> d_gamma, View1<G> d_beta) {
  const auto blocks = static_cast<index_t>(sums.extent(0));
  const auto h = static_cast<index_t>(sums.extent(2));
  const A* const partial = sums.data();
  G* const d_gamma_data = d_gamma.data();
  G* const d_beta_data = d_beta.data();
  const bool adds = accumulate == Accumulate::yes;
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_backward_weight[combine]",
       {.bytes =
            bytes_of(sums, d_gamma, d_beta) + (adds ? bytes_of(d_gamma, d_beta) : 0)}},
      tiles_of(h, kCombineTile), ColumnsOfRows(),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        const index_t column = tile * kCombineTile;
        const index_t width = tile_width(h, column, kCombineTile);
        combine_rows(team, adds, blocks, column, width, d_gamma_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * 2 * h;
                       return [=](auto j) { return read<A>(row, j); };
                     });
        combine_rows(team, adds, blocks, column, width, d_beta_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * 2 * h + h;
                       return [=](auto j) { return read<A>(row, j); };
                     });
      },
      2 * kCombineScratch<A>);
}

}  // namespace

template <class T, class G>
void layer_norm_backward_weight(const Exec& exec, View2<const T> d_y, View2<const T> x,
                                View1<const Accumulator<T>> mean,
                                View1<const Accumulator<T>> rstd,
                                View1<Accumulator<T>> scratch, Accumulate accumulate,
                                View1<G> d_gamma, View1<G> d_beta) {
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
  const RowBlocks blocks(rows, RowBlocks::most_tiled(h));
  const View3<A> sums(scratch.data(), extent(blocks.count), 2, extent(h));
  A* const partial = sums.data();
  const index_t tile = column_tile(h), tiles = tiles_of(h, tile);
  launch_rows(
      exec,
      {"trireme::kernels::layer_norm_backward_weight[blocks]",
       {.bytes = bytes_of(d_y, x, mean, rstd, sums)}},
      blocks.count * tiles, ColumnsOfRows(h, d_y_data, x_data, partial).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(h, column, tile);
        A* const to = partial + block * 2 * h + column;
        sum_block(team, blocks.of(block), column, width, to, [=](index_t row) {
          const A center = mean_data[row];
          const A scale = rstd_data[row];
          const T* const in = x_data + row * h;
          const T* const d_out = d_y_data + row * h;
          return [=](auto j) {
            return read<A>(d_out, j) * ((read<A>(in, j) - center) * scale);
          };
        });
        sum_block(team, blocks.of(block), column, width, to + h, [=](index_t row) {
          const T* const d_out = d_y_data + row * h;
          return [=](auto j) { return read<A>(d_out, j); };
        });
      });

  combine_blocks<A, G>(exec, sums, accumulate, d_gamma, d_beta);
}

#define TRIREME_INSTANTIATE(T)                                      \
  template decltype(layer_norm_forward<T>) layer_norm_forward<T>;   \
  template decltype(layer_norm_backward<T>) layer_norm_backward<T>; \
  template decltype(layer_norm_backward_input<T>) layer_norm_backward_input<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G) \
  template decltype(layer_norm_backward_weight<T, G>) layer_norm_backward_weight<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

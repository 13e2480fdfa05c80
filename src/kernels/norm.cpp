// kernels/norm.cpp — layer norm and RMS norm, forward and backward.
//
// A row lies in the nearest cache while it is summed once or twice and written once
// (impl/norm_rows.hpp). Backward, the sums over rows are left by blocks while d_x is
// written (impl/norm_gradients.hpp); the passes for one of the two alone are the plain
// way. Derivation: docs/math/norm.md
#include "kernels/norm.hpp"

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_gradients.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {
namespace {

template <NormKind kKind, class T>
void launch_norm(const Exec& exec, const Kernel& kernel, View2<const T> x,
                 const NormOfRows<kKind, T>& norm) {
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const T* const x_data = x.data();
  launch_held_rows<T, kHeldPieces>(
      exec, kernel, tiles_of(rows, kNormRows),
      ColumnsOfRows(h, x_data, norm.gamma, norm.beta, norm.y),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        norm_rows(team, norm, tile, rows, h,
                  [=](index_t row) { return RowInMemory<T>{x_data + row * h}; });
      });
}

}  // namespace

template <class T>
void norm_forward(const Exec& exec, NormKind kind, View2<const T> x, View1<const T> gamma,
                  View1<const T> beta, double epsilon, View2<T> y,
                  View1<Accumulator<T>> mean, View1<Accumulator<T>> rstd) {
  constexpr const char* kName = "norm_forward";
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const Cost cost{.bytes = bytes_of(x, gamma, beta, y, mean, rstd)};
  if (kind == NormKind::layernorm) {
    launch_norm(exec, {"trireme::kernels::layer_norm_forward", cost}, x,
                norm_of_rows<NormKind::layernorm>(kName, rows, h, gamma, beta, epsilon, y,
                                                  mean, rstd));
  } else {
    launch_norm(
        exec, {"trireme::kernels::rms_norm_forward", cost}, x,
        norm_of_rows<NormKind::rms>(kName, rows, h, gamma, beta, epsilon, y, mean, rstd));
  }
}

namespace {

template <NormKind kKind, class T>
void launch_backward_input(const Exec& exec, const Kernel& kernel, index_t rows,
                           const NormGradients<T>& of) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_rows(
      exec, kernel, rows, ColumnsOfRows(h, of.d_y, of.x, of.gamma, of.d_residual, of.d_x),
      KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        T* const d_in = of.d_x + row * h;
        const T* const by_pass =
            of.d_residual == nullptr ? nullptr : of.d_residual + row * h;
        const A center = kKind == NormKind::layernorm ? of.mean[row] : A{0};
        const auto norm = norm_backward_row<kKind, T, T>(
            team, of.d_y + row * h, of.x + row * h, of.gamma, center, of.rstd[row], h,
            per_column, [](auto) {});
        for_each_lanes(team, h, [=](auto j) {
          auto sum = norm.d_x(read<A>(norm.d_y, j), norm.x_hat(j), j);
          if (by_pass != nullptr) sum = sum + read<A>(by_pass, j);
          write(d_in, j, sum);
        });
      });
}

}  // namespace

template <class T>
void norm_backward_input(const Exec& exec, NormKind kind, View2<const T> d_y,
                         View2<const T> x, View1<const T> gamma,
                         View1<const Accumulator<T>> mean,
                         View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                         View2<T> d_x) {
  constexpr const char* kName = "norm_backward_input";
  const NormGradients<T> of =
      norm_gradients(kName, kind, d_y, x, gamma, mean, rstd, d_residual, d_x);
  const auto rows = static_cast<index_t>(x.extent(0));
  const Cost cost{.bytes = bytes_of(d_y, x, gamma, mean, rstd, d_residual, d_x)};
  if (kind == NormKind::layernorm) {
    launch_backward_input<NormKind::layernorm>(
        exec, {"trireme::kernels::layer_norm_backward_input", cost}, rows, of);
  } else {
    launch_backward_input<NormKind::rms>(
        exec, {"trireme::kernels::rms_norm_backward_input", cost}, rows, of);
  }
}

namespace {

template <NormKind kKind, class T>
void launch_norm_alone(const Exec& exec, const Kernel& kernel, index_t rows,
                       const NormGradients<T>& of) {
  const DropoutMask<Accumulator<T>> none;
  if (of.d_residual != nullptr) {
    launch_norm_backward<NormPass<kKind, true>>(exec, kernel, none, nullptr, rows, of);
  } else {
    launch_norm_backward<NormPass<kKind, false>>(exec, kernel, none, nullptr, rows, of);
  }
}

}  // namespace

template <class T>
void norm_backward(const Exec& exec, NormKind kind, View2<const T> d_y, View2<const T> x,
                   View1<const T> gamma, View1<const Accumulator<T>> mean,
                   View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                   View2<T> d_x, const NormPartials<Accumulator<T>>& partials) {
  constexpr const char* kName = "norm_backward";
  NormGradients<T> of =
      norm_gradients(kName, kind, d_y, x, gamma, mean, rstd, d_residual, d_x);
  const auto rows = static_cast<index_t>(x.extent(0));
  set_norm_sums(kName, kind, rows, partials, of);
  const Cost cost{.bytes = bytes_of(d_y, x, gamma, mean, rstd, d_residual, d_x,
                                    partials.gamma, partials.beta)};
  if (kind == NormKind::layernorm) {
    launch_norm_alone<NormKind::layernorm>(
        exec, {"trireme::kernels::layer_norm_backward", cost}, rows, of);
  } else {
    launch_norm_alone<NormKind::rms>(exec, {"trireme::kernels::rms_norm_backward", cost},
                                     rows, of);
  }
}

index_t norm_scratch_elements(index_t h) {
  return 2 * RowBlocks::most_tiled(h) * h;
}

namespace {

// d_gamma += and d_beta += the sums of all blocks of rows, (blocks, 2, h), in their
// order; of gamma alone (blocks, 1, h), where d_beta has no elements.
template <class A, class G>
void launch_combination(const Exec& exec, const Kernel& kernel, View3<A> sums,
                        Accumulate accumulate, View1<G> d_gamma, View1<G> d_beta) {
  const auto blocks = static_cast<index_t>(sums.extent(0));
  const auto apart = static_cast<index_t>(sums.extent(1) * sums.extent(2));
  const auto h = static_cast<index_t>(sums.extent(2));
  const A* const partial = sums.data();
  G* const d_gamma_data = d_gamma.data();
  G* const d_beta_data = d_beta.extent(0) == 0 ? nullptr : d_beta.data();
  const bool adds = accumulate == Accumulate::yes;
  launch_rows(
      exec, kernel, tiles_of(h, kCombineTile), ColumnsOfRows(),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        const index_t column = tile * kCombineTile;
        const index_t width = tile_width(h, column, kCombineTile);
        combine_rows(team, adds, blocks, column, width, d_gamma_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * apart;
                       return [=](auto j) { return read<A>(row, j); };
                     });
        if (d_beta_data == nullptr) return;
        combine_rows(team, adds, blocks, column, width, d_beta_data + column,
                     [=](index_t block) {
                       const A* const row = partial + block * apart + h;
                       return [=](auto j) { return read<A>(row, j); };
                     });
      },
      2 * kCombineScratch<A>);
}

// sums (blocks, 2, h): of gamma's gradient and, of a layer norm, of beta's, over blocks
// of rows; (blocks, 1, h) of an RMS norm.
template <NormKind kKind, class T>
void launch_weight_blocks(const Exec& exec, const Kernel& kernel, View2<const T> d_y,
                          View2<const T> x, View1<const Accumulator<T>> mean,
                          View1<const Accumulator<T>> rstd, const RowBlocks& blocks,
                          View3<Accumulator<T>> sums) {
  using A = Accumulator<T>;
  const auto h = static_cast<index_t>(x.extent(1));
  const T* const d_y_data = d_y.data();
  const T* const x_data = x.data();
  const A* const mean_data = mean.data();
  const A* const rstd_data = rstd.data();
  A* const partial = sums.data();
  const auto apart = static_cast<index_t>(sums.extent(1)) * h;
  const index_t tile = column_tile(h), tiles = tiles_of(h, tile);
  launch_rows(
      exec, kernel, blocks.count * tiles,
      ColumnsOfRows(h, d_y_data, x_data, partial).in_tiles(tile),
      KOKKOS_LAMBDA(const RowTeam& team, index_t item) {
        const index_t block = item / tiles;
        const index_t column = item % tiles * tile;
        const index_t width = tile_width(h, column, tile);
        A* const to = partial + block * apart + column;
        sum_block(team, blocks.of(block), column, width, to, [=](index_t row) {
          const A center = kKind == NormKind::layernorm ? mean_data[row] : A{0};
          const A scale = rstd_data[row];
          const T* const in = x_data + row * h;
          const T* const d_out = d_y_data + row * h;
          return [=](auto j) {
            return read<A>(d_out, j) * normed<kKind>(read<A>(in, j), center, scale);
          };
        });
        if constexpr (kKind == NormKind::layernorm) {
          sum_block(team, blocks.of(block), column, width, to + h, [=](index_t row) {
            const T* const d_out = d_y_data + row * h;
            return [=](auto j) { return read<A>(d_out, j); };
          });
        }
      });
}

}  // namespace

template <class T, class G>
void norm_backward_weight(const Exec& exec, NormKind kind, View2<const T> d_y,
                          View2<const T> x, View1<const Accumulator<T>> mean,
                          View1<const Accumulator<T>> rstd, View1<Accumulator<T>> scratch,
                          Accumulate accumulate, View1<G> d_gamma, View1<G> d_beta) {
  using A = Accumulator<T>;
  constexpr const char* kName = "norm_backward_weight";
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto h = static_cast<index_t>(x.extent(1));
  const bool is_layer_norm = kind == NormKind::layernorm;
  require_extents(kName, "d_y", d_y, rows, h);
  require_extent(kName, "rstd", rstd, rows);
  require_extent(kName, "d_gamma", d_gamma, h);
  require_extent(kName, "mean", mean, is_layer_norm ? rows : 0);
  require_extent(kName, "d_beta", d_beta, is_layer_norm ? h : 0);
  TRIREME_REQUIRE(static_cast<index_t>(scratch.extent(0)) >= norm_scratch_elements(h),
                  "kernels::{}: scratch has {}, needs {}", kName,
                  format_plural(scratch.extent(0), "element"), norm_scratch_elements(h));

  const RowBlocks blocks(rows, RowBlocks::most_tiled(h));
  const View3<A> sums(scratch.data(), extent(blocks.count), is_layer_norm ? 2 : 1,
                      extent(h));
  const Cost of_blocks{.bytes = bytes_of(d_y, x, mean, rstd, sums)};
  const index_t before = accumulate == Accumulate::yes ? bytes_of(d_gamma, d_beta) : 0;
  const Cost of_sums{.bytes = bytes_of(sums, d_gamma, d_beta) + before};
  if (is_layer_norm) {
    launch_weight_blocks<NormKind::layernorm, T>(
        exec, {"trireme::kernels::layer_norm_backward_weight[blocks]", of_blocks}, d_y, x,
        mean, rstd, blocks, sums);
    launch_combination<A, G>(
        exec, {"trireme::kernels::layer_norm_backward_weight[combine]", of_sums}, sums,
        accumulate, d_gamma, d_beta);
  } else {
    launch_weight_blocks<NormKind::rms, T>(
        exec, {"trireme::kernels::rms_norm_backward_weight[blocks]", of_blocks}, d_y, x,
        mean, rstd, blocks, sums);
    launch_combination<A, G>(
        exec, {"trireme::kernels::rms_norm_backward_weight[combine]", of_sums}, sums,
        accumulate, d_gamma, d_beta);
  }
}

#define TRIREME_INSTANTIATE(T)                          \
  template decltype(norm_forward<T>) norm_forward<T>;   \
  template decltype(norm_backward<T>) norm_backward<T>; \
  template decltype(norm_backward_input<T>) norm_backward_input<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, G) \
  template decltype(norm_backward_weight<T, G>) norm_backward_weight<T, G>;
TRIREME_FOR_EACH_GRADIENT(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

// kernels/residual_norm.cpp — residual addition and norm, fused both ways.
//
// Forward, a row is written by the addition and read by the norm while it lies in the
// nearest cache. Backward, blocks of rows are walked (impl/column_sums.hpp): the two sums
// of the norm over a row, then d_x1, d_branch and what the row adds to the sums over
// rows. Derivation: docs/math/residual_norm.md
#include "kernels/residual_norm.hpp"

#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_gradients.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

namespace {

// A row of residual + dropout(branch + bias), for layer_norm_rows().
template <class T>
struct RowOfAddition {
  using A = Accumulator<T>;
  struct Loaded {
    StoredEight<T> branch, residual;
  };
  const DropoutMask<A>& mask;
  const StepState* state;
  const T *branch, *bias, *residual;
  T* x1;
  index_t row, h;
  WordsOfRow words;  // where a GPU draws any

  KOKKOS_FORCEINLINE_FUNCTION const T* in(const RowTeam& team) const {
    bias_dropout_add_row<T>(team, mask, state, row, h, branch, bias, residual, x1);
    team_barrier(team);
    return x1 + row * h;
  }
  KOKKOS_FORCEINLINE_FUNCTION Loaded load(PieceAt at) const {
    return {load_stored(branch, row * h + at), load_stored(residual, row * h + at)};
  }
  KOKKOS_FORCEINLINE_FUNCTION Eight<A> make(const Loaded& loaded, PieceAt at) const {
    Eight<A> sum = numbers_of<A>(loaded.branch) + read<A>(bias, at);
    if (mask.threshold != 0) {
      sum = dropping(mask, words.at(at))(sum);
    }
    return written<A>(x1, row * h + at, sum + numbers_of<A>(loaded.residual));
  }
};

}  // namespace

template <class T>
void residual_norm_forward(const Exec& exec, const DropoutDesc& desc, StepStateView step,
                           View2<const T> branch, View1<const T> bias,
                           View2<const T> residual, View1<const T> gamma,
                           View1<const T> beta, double epsilon, View2<T> x1, View2<T> y,
                           View1<Accumulator<T>> mean, View1<Accumulator<T>> rstd) {
  using A = Accumulator<T>;
  constexpr const char* kName = "residual_norm_forward";
  const auto rows = static_cast<index_t>(branch.extent(0));
  const auto h = static_cast<index_t>(branch.extent(1));
  const DropoutMask<A> mask(desc, rows, h, kName);
  require_extent(kName, "bias", bias, h);
  require_extents(kName, "residual", residual, rows, h);
  require_extent(kName, "gamma", gamma, h);
  require_extent(kName, "beta", beta, h);
  require_extents(kName, "x1", x1, rows, h);
  require_extents(kName, "y", y, rows, h);
  require_extent(kName, "mean", mean, rows);
  require_extent(kName, "rstd", rstd, rows);

  const T* const branch_data = branch.data();
  const T* const bias_data = bias.data();
  const T* const residual_data = residual.data();
  T* const x1_data = x1.data();
  const StepState* const state = step.data();
  const NormOfRows<T> norm{gamma.data(),
                           beta.data(),
                           static_cast<A>(epsilon),
                           static_cast<A>(1.0 / static_cast<double>(h)),
                           y.data(),
                           mean.data(),
                           rstd.data()};
  launch_held_rows<T, kHeldPieces>(
      exec,
      {"trireme::kernels::residual_norm_forward",
       {.bytes = bytes_of(branch, bias, residual, gamma, beta, x1, y, mean, rstd)}},
      tiles_of(rows, kNormRows),
      ColumnsOfRows(h, branch_data, bias_data, residual_data, x1_data, norm.gamma,
                    norm.beta, norm.y),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        layer_norm_rows<T>(team, norm, tile, rows, h, [=](index_t row) {
          WordsOfRow words;
          if (kRowsByTeams && mask.threshold != 0) {
            words = WordsOfRow(mask, *state, row);
          }
          return RowOfAddition<T>{mask,    state, branch_data, bias_data, residual_data,
                                  x1_data, row,   h,           words};
        });
      });
}

namespace {

// What a row writes and adds to the sums, as a function of the column.
template <bool kMasked, class T, class X>
KOKKOS_FORCEINLINE_FUNCTION auto residual_norm_backward_row(const RowTeam& team,
                                                            const NormGradients<T>& of,
                                                            const X* gamma, index_t row,
                                                            Accumulator<T> per_column) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const NormBackwardRow<T, X> norm =
      norm_backward_row<T, X>(team, of.d_y + row * h, of.x + row * h, gamma, of.mean[row],
                              of.rstd[row], h, per_column, [=](auto j) {
                                ask_for(of.x + (row + 4) * h, j);
                                if (kMasked) ask_for(of.d_y + (row + 4) * h, j);
                              });
  const T* const by_pass = of.d_residual + row * h;
  T* const d_x1 = of.d_x + row * h;
  T* const d_branch = kMasked ? of.d_branch + row * h : nullptr;
  // The host takes four rows at a time; the next four come while these are written.
  // Behind the last row the address is never read.
  const index_t next = 4 * h;
  return [=](auto j, const auto& dropped) {
    if (!kMasked) ask_for(norm.d_y + next, j);
    ask_for(by_pass + next, j);
    if constexpr (kMasked) ask_to_write(d_branch + next, j);
    const auto d_y = read<A>(norm.d_y, j);
    const auto x_hat = norm.x_hat(j);
    auto through = written<A>(d_x1, j, norm.d_x(d_y, x_hat, j) + read<A>(by_pass, j));
    if constexpr (kMasked) through = written<A>(d_branch, j, dropped(through));
    return terms_of(d_y * x_hat, d_y, through);
  };
}

template <bool kMasked, class T>
void launch_residual_norm_backward(const Exec& exec, const Kernel& kernel,
                                   const DropoutMask<Accumulator<T>>& mask,
                                   const StepState* state, index_t rows,
                                   const NormGradients<T>& of) {
  using A = Accumulator<T>;
  const index_t h = of.h;
  const RowBlocks blocks(rows, RowBlocks::most_whole(h));
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_held_blocks<T, kThreadsOfRows>(
      exec, kernel, blocks.count,
      ColumnsOfRows(h, of.d_y, of.x, of.gamma, of.d_residual, of.d_x, of.d_branch,
                    of.gamma_sums, of.beta_sums, of.bias_sums),
      KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const BlockOfRows<A, 3> sums{blocks.of(block),
                                     h,
                                     {of.gamma_sums + block * h, of.beta_sums + block * h,
                                      of.bias_sums + block * h}};
        if (norm_gradients_in_registers<true, kMasked>(team, mask, state, per_column,
                                                       sums, of)) {
          return;
        }
        with_widened<T>(
            team, h,
            [&](const auto* gamma) {
              const auto row_of = [=](const RowTeam& row_team, index_t row) {
                return residual_norm_backward_row<kMasked>(row_team, of, gamma, row,
                                                           per_column);
              };
              write_and_sum_rows<kMasked>(team, mask, state, sums, row_of);
            },
            of.gamma);
      });
}

}  // namespace

template <class T>
void residual_norm_backward(const Exec& exec, const DropoutDesc& desc, StepStateView step,
                            View2<const T> d_y, View2<const T> x1, View1<const T> gamma,
                            View1<const Accumulator<T>> mean,
                            View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                            View2<T> d_x1, View2<T> d_branch,
                            const NormPartials<Accumulator<T>>& norm_partials,
                            View2<Accumulator<T>> bias_partials) {
  using A = Accumulator<T>;
  constexpr const char* kName = "residual_norm_backward";
  const auto rows = static_cast<index_t>(x1.extent(0));
  const auto h = static_cast<index_t>(x1.extent(1));
  const DropoutMask<A> mask(desc, rows, h, kName);
  const bool drops = mask.threshold != 0;
  require_extents(kName, "d_y", d_y, rows, h);
  require_extent(kName, "gamma", gamma, h);
  require_extent(kName, "mean", mean, rows);
  require_extent(kName, "rstd", rstd, rows);
  require_extents(kName, "d_residual", d_residual, rows, h);
  require_extents(kName, "d_x1", d_x1, rows, h);
  require_extents(kName, "d_branch", d_branch, drops ? rows : 0, drops ? h : 0);
  require_extents(kName, "gamma's partials", norm_partials.gamma, partial_count(rows, h),
                  h);
  require_extents(kName, "beta's partials", norm_partials.beta, partial_count(rows, h),
                  h);
  require_extents(kName, "the bias's partials", bias_partials, partial_count(rows, h), h);

  const Kernel kernel{
      "trireme::kernels::residual_norm_backward",
      {.bytes = bytes_of(d_y, x1, gamma, mean, rstd, d_residual, d_x1, d_branch,
                         norm_partials.gamma, norm_partials.beta, bias_partials)}};
  const NormGradients<T> of{d_y.data(),
                            x1.data(),
                            gamma.data(),
                            d_residual.data(),
                            mean.data(),
                            rstd.data(),
                            d_x1.data(),
                            d_branch.data(),
                            norm_partials.gamma.data(),
                            norm_partials.beta.data(),
                            bias_partials.data(),
                            h};
  if (drops) {
    launch_residual_norm_backward<true, T>(exec, kernel, mask, step.data(), rows, of);
  } else {
    launch_residual_norm_backward<false, T>(exec, kernel, mask, step.data(), rows, of);
  }
}

#define TRIREME_INSTANTIATE(T)                                          \
  template decltype(residual_norm_forward<T>) residual_norm_forward<T>; \
  template decltype(residual_norm_backward<T>) residual_norm_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

// kernels/residual_norm.cpp — residual addition and norm, fused both ways.
//
// Forward, a row is written by the addition and read by the norm while it lies in the
// nearest cache. Backward, blocks of rows are walked (impl/column_sums.hpp): the two sums
// of the norm over a row, then d_x1, d_branch and what the row adds to the sums over
// rows. Derivation: docs/math/residual_norm.md
#include "kernels/residual_norm.hpp"

#include "kernels/impl/column_sums.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

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
  launch_rows(
      exec,
      {"trireme::kernels::residual_norm_forward",
       {.bytes = bytes_of(branch, bias, residual, gamma, beta, x1, y, mean, rstd)}},
      rows, KOKKOS_LAMBDA(const RowTeam& team, index_t row) {
        bias_dropout_add_row<T>(team, mask, state, row, h, branch_data, bias_data,
                                residual_data, x1_data);
        team_barrier(team);
        layer_norm_row<T>(team, norm, row, h, x1_data + row * h);
      });
}

namespace {

// Pointers of residual_norm_backward.
template <class T>
struct ResidualNormBackward {
  using A = Accumulator<T>;
  const T *d_y, *x1, *gamma, *d_residual;
  const A *mean, *rstd;
  T *d_x1, *d_branch;
  A *gamma_sums, *beta_sums, *bias_sums;
  index_t h;
};

template <bool kMasked, class T>
void launch_residual_norm_backward(const Exec& exec, const Kernel& kernel,
                                   const DropoutMask<Accumulator<T>>& mask,
                                   const StepState* state, index_t rows,
                                   const ResidualNormBackward<T>& of) {
  using A = Accumulator<T>;
  const RowBlocks blocks(rows);
  const index_t h = of.h;
  const A per_column = static_cast<A>(1.0 / static_cast<double>(h));
  launch_rows(
      exec, kernel, blocks.count, KOKKOS_LAMBDA(const RowTeam& team, index_t block) {
        const A keep_scale = mask.scale;
        const std::uint32_t threshold = mask.threshold;
        const BlockOfRows<A, 3> sums{blocks.begin(block),
                                     blocks.begin(block + 1),
                                     h,
                                     {of.gamma_sums + block * h, of.beta_sums + block * h,
                                      of.bias_sums + block * h}};
        const auto row_of = [=](const RowTeam& row_team, index_t row) {
          // The host takes four rows at a time; the next four come while these are
          // summed. Behind the last row the address is never read. Where words are drawn
          // there is time enough without, and it was measured to cost.
          if constexpr (!kMasked) {
            prefetch_columns(row_team, of.d_y + (row + 4) * h, h);
            prefetch_columns(row_team, of.x1 + (row + 4) * h, h);
            prefetch_columns(row_team, of.d_residual + (row + 4) * h, h);
          }
          const NormBackwardRow<T> norm =
              norm_backward_row<T>(row_team, of.d_y + row * h, of.x1 + row * h, of.gamma,
                                   of.mean[row], of.rstd[row], h, per_column);
          const T* const by_pass = of.d_residual + row * h;
          T* const d_x1 = of.d_x1 + row * h;
          T* const d_branch = kMasked ? of.d_branch + row * h : nullptr;
          return [=](index_t j, std::uint32_t word) {
            const A d_y = static_cast<A>(norm.d_y[j]);
            const A x_hat = norm.x_hat(j);
            // Rounded twice, to be stored and to go on: a copy of a two-byte element kept
            // in a variable would not be made into vectors.
            const A sum = norm.d_x(d_y, x_hat, j) + static_cast<A>(by_pass[j]);
            d_x1[j] = static_cast<T>(sum);
            A through = static_cast<A>(static_cast<T>(sum));
            if constexpr (kMasked) {
              const A scaled = through * keep_scale;
              const A masked = word < threshold ? A{0} : scaled;
              d_branch[j] = static_cast<T>(masked);
              through = static_cast<A>(static_cast<T>(masked));
            }
            return Terms<A, 3>{{d_y * x_hat, d_y, through}};
          };
        };
        write_and_sum_rows<kMasked>(team, mask, state, sums, row_of);
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
  require_extents(kName, "gamma's partials", norm_partials.gamma, partial_count(rows), h);
  require_extents(kName, "beta's partials", norm_partials.beta, partial_count(rows), h);
  require_extents(kName, "the bias's partials", bias_partials, partial_count(rows), h);

  const Kernel kernel{
      "trireme::kernels::residual_norm_backward",
      {.bytes = bytes_of(d_y, x1, gamma, mean, rstd, d_residual, d_x1, d_branch,
                         norm_partials.gamma, norm_partials.beta, bias_partials)}};
  const ResidualNormBackward<T> of{d_y.data(),
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

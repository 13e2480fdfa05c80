// kernels/residual_norm.cpp — residual addition and norm, fused both ways.
//
// Forward, a row is written by the addition and read by the norm while it lies in the
// nearest cache. Backward, blocks of rows are walked (impl/norm_gradients.hpp): the sums
// of the norm over a row, then d_x1, d_branch and what the row adds to the sums over
// rows. Derivation: docs/math/residual_norm.md
#include "kernels/residual_norm.hpp"

#include "base/error.hpp"
#include "kernels/impl/dropout_rows.hpp"
#include "kernels/impl/lanes.hpp"
#include "kernels/impl/norm_gradients.hpp"
#include "kernels/impl/norm_rows.hpp"
#include "kernels/impl/rows.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

namespace {

// A row of residual + dropout(branch + bias), for norm_rows(). Whether the bias may be
// null is known to the compiler: to ask would cost the registers of a layer norm.
template <bool kMayLackBias, class T>
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
    Eight<A> sum = numbers_of<A>(loaded.branch);
    if (!kMayLackBias || bias != nullptr) sum = sum + read<A>(bias, at);
    if (mask.threshold != 0) {
      sum = dropping(mask, words.at(at))(sum);
    }
    return written<A>(x1, row * h + at, sum + numbers_of<A>(loaded.residual));
  }
};

template <bool kMayLackBias, NormKind kKind, class T>
void launch_residual_norm(const Exec& exec, const Kernel& kernel,
                          const DropoutMask<Accumulator<T>>& mask, const StepState* state,
                          View2<const T> branch, View1<const T> bias,
                          View2<const T> residual, View2<T> x1,
                          const NormOfRows<kKind, T>& norm) {
  const auto rows = static_cast<index_t>(branch.extent(0));
  const auto h = static_cast<index_t>(branch.extent(1));
  const T* const branch_data = branch.data();
  const T* const bias_data = bias.extent(0) == 0 ? nullptr : bias.data();
  const T* const residual_data = residual.data();
  T* const x1_data = x1.data();
  launch_held_rows<T, kHeldPieces>(
      exec, kernel, tiles_of(rows, kNormRows),
      ColumnsOfRows(h, branch_data, bias_data, residual_data, x1_data, norm.gamma,
                    norm.beta, norm.y),
      KOKKOS_LAMBDA(const RowTeam& team, index_t tile) {
        norm_rows(team, norm, tile, rows, h, [=](index_t row) {
          WordsOfRow words;
          if (kRowsByTeams && mask.threshold != 0) {
            words = WordsOfRow(mask, *state, row);
          }
          return RowOfAddition<kMayLackBias, T>{
              mask, state, branch_data, bias_data, residual_data, x1_data, row, h, words};
        });
      });
}

}  // namespace

template <class T>
void residual_norm_forward(const Exec& exec, NormKind kind, const DropoutDesc& desc,
                           StepStateView step, View2<const T> branch, View1<const T> bias,
                           View2<const T> residual, View1<const T> gamma,
                           View1<const T> beta, double epsilon, View2<T> x1, View2<T> y,
                           View1<Accumulator<T>> mean, View1<Accumulator<T>> rstd) {
  constexpr const char* kName = "residual_norm_forward";
  const auto rows = static_cast<index_t>(branch.extent(0));
  const auto h = static_cast<index_t>(branch.extent(1));
  const DropoutMask<Accumulator<T>> mask(desc, rows, h, kName);
  if (bias.extent(0) != 0) require_extent(kName, "bias", bias, h);
  require_extents(kName, "residual", residual, rows, h);
  require_extents(kName, "x1", x1, rows, h);

  const Cost cost{.bytes =
                      bytes_of(branch, bias, residual, gamma, beta, x1, y, mean, rstd)};
  if (kind == NormKind::layernorm) {
    const auto norm = norm_of_rows<NormKind::layernorm>(kName, rows, h, gamma, beta,
                                                        epsilon, y, mean, rstd);
    if (bias.extent(0) != 0) {
      launch_residual_norm<false>(exec, {"trireme::kernels::residual_norm_forward", cost},
                                  mask, step.data(), branch, bias, residual, x1, norm);
    } else {
      launch_residual_norm<true>(
          exec, {"trireme::kernels::residual_norm_forward[no_bias]", cost}, mask,
          step.data(), branch, bias, residual, x1, norm);
    }
  } else {
    launch_residual_norm<true>(
        exec, {"trireme::kernels::residual_norm_forward[rms]", cost}, mask, step.data(),
        branch, bias, residual, x1,
        norm_of_rows<NormKind::rms>(kName, rows, h, gamma, beta, epsilon, y, mean, rstd));
  }
}

namespace {

// With a gradient that by-passes the norm.
template <NormKind kKind, class T>
void launch_beside_residual(const Exec& exec, const Kernel& kernel,
                            const DropoutMask<Accumulator<T>>& mask,
                            const StepState* state, index_t rows,
                            const NormGradients<T>& of, bool has_bias) {
  const auto with_pass = [&](auto pass) {
    launch_norm_backward<decltype(pass)>(exec, kernel, mask, state, rows, of);
  };
  const bool drops = mask.threshold != 0;
  if (has_bias && drops) {
    with_pass(NormPass<kKind, true, true, true>());
  } else if (has_bias) {
    with_pass(NormPass<kKind, true, false, true>());
  } else if (drops) {
    with_pass(NormPass<kKind, true, true, false>());
  } else {
    with_pass(NormPass<kKind, true>());
  }
}

// Without one: post-norm.
template <class T>
void launch_post_norm(const Exec& exec, const Kernel& kernel,
                      const DropoutMask<Accumulator<T>>& mask, const StepState* state,
                      index_t rows, const NormGradients<T>& of) {
  if (mask.threshold != 0) {
    launch_norm_backward<NormPass<NormKind::layernorm, false, true, true>>(
        exec, kernel, mask, state, rows, of);
  } else {
    launch_norm_backward<NormPass<NormKind::layernorm, false, false, true>>(
        exec, kernel, mask, state, rows, of);
  }
}

}  // namespace

template <class T>
void residual_norm_backward(const Exec& exec, NormKind kind, const DropoutDesc& desc,
                            StepStateView step, View2<const T> d_y, View2<const T> x1,
                            View1<const T> gamma, View1<const Accumulator<T>> mean,
                            View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                            View2<T> d_x1, View2<T> d_branch,
                            const NormPartials<Accumulator<T>>& norm_partials,
                            View2<Accumulator<T>> bias_partials, View2<const T> d_y2) {
  constexpr const char* kName = "residual_norm_backward";
  const auto rows = static_cast<index_t>(x1.extent(0));
  const auto h = static_cast<index_t>(x1.extent(1));
  const DropoutMask<Accumulator<T>> mask(desc, rows, h, kName);
  const bool drops = mask.threshold != 0, has_bias = bias_partials.extent(0) != 0;
  const bool by_passes = d_residual.extent(1) != 0, adds = d_y2.extent(1) != 0;
  NormGradients<T> of =
      norm_gradients(kName, kind, d_y, x1, gamma, mean, rstd, d_residual, d_x1);
  set_norm_sums(kName, kind, rows, norm_partials, of);
  require_extents(kName, "d_branch", d_branch, drops ? rows : 0, drops ? h : 0);
  if (has_bias) {
    require_extents(kName, "the bias's partials", bias_partials, partial_count(rows, h),
                    h);
  }
  if (adds) require_extents(kName, "d_y2", d_y2, rows, h);
  TRIREME_REQUIRE(by_passes || (kind == NormKind::layernorm && has_bias),
                  "kernels::{}: without d_residual it is of a layer norm with a bias",
                  kName);
  TRIREME_REQUIRE(!(by_passes && adds),
                  "kernels::{}: of d_residual and d_y2 there is one at most", kName);
  of.d_branch = d_branch.data();
  of.bias_sums = bias_partials.data();
  of.d_y2 = adds ? d_y2.data() : nullptr;

  const Cost cost{.bytes = bytes_of(d_y, x1, gamma, mean, rstd, d_residual, d_y2, d_x1,
                                    d_branch, norm_partials.gamma, norm_partials.beta,
                                    bias_partials)};
  if (!by_passes) {
    launch_post_norm(exec, {"trireme::kernels::residual_norm_backward[post_norm]", cost},
                     mask, step.data(), rows, of);
  } else if (kind == NormKind::layernorm) {
    launch_beside_residual<NormKind::layernorm>(
        exec, {"trireme::kernels::residual_norm_backward", cost}, mask, step.data(), rows,
        of, has_bias);
  } else {
    launch_beside_residual<NormKind::rms>(
        exec, {"trireme::kernels::residual_norm_backward[rms]", cost}, mask, step.data(),
        rows, of, has_bias);
  }
}

#define TRIREME_INSTANTIATE(T)                                          \
  template decltype(residual_norm_forward<T>) residual_norm_forward<T>; \
  template decltype(residual_norm_backward<T>) residual_norm_backward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

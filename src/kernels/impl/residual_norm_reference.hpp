// kernels/impl/residual_norm_reference.hpp — the operations of residual_norm.hpp by one
// kernel for each of their steps: what the fused ones must equal, to the bit, and are
// measured against.
#ifndef TRIREME_KERNELS_IMPL_RESIDUAL_NORM_REFERENCE_HPP_
#define TRIREME_KERNELS_IMPL_RESIDUAL_NORM_REFERENCE_HPP_

#include "base/exec.hpp"
#include "kernels/dropout.hpp"
#include "kernels/norm.hpp"
#include "kernels/reductions.hpp"

namespace trireme::kernels {

template <class T>
void residual_norm_forward_reference(const Exec& exec, NormKind kind,
                                     const DropoutDesc& desc, StepStateView step,
                                     View2<const T> branch, View1<const T> bias,
                                     View2<const T> residual, View1<const T> gamma,
                                     View1<const T> beta, double epsilon, View2<T> x1,
                                     View2<T> y, View1<Accumulator<T>> mean,
                                     View1<Accumulator<T>> rstd) {
  bias_dropout_add_forward<T>(exec, desc, step, branch, bias, residual, x1);
  norm_forward<T>(exec, kind, x1, gamma, beta, epsilon, y, mean, rstd);
}

// The sums are added to d_gamma, d_beta and d_bias, of which the last two may be null
// Views; scratch has norm_scratch_elements(h) elements. d_branch has memory of its own.
template <class T>
void residual_norm_backward_reference(
    const Exec& exec, NormKind kind, const DropoutDesc& desc, StepStateView step,
    View2<const T> d_y, View2<const T> x1, View1<const T> gamma,
    View1<const Accumulator<T>> mean, View1<const Accumulator<T>> rstd,
    View2<const T> d_residual, View2<T> d_x1, View2<T> d_branch,
    View1<Accumulator<T>> scratch, View1<Accumulator<T>> d_gamma,
    View1<Accumulator<T>> d_beta, View1<Accumulator<T>> d_bias) {
  norm_backward_weight<T>(exec, kind, d_y, x1, mean, rstd, scratch, Accumulate::yes,
                          d_gamma, d_beta);
  norm_backward_input<T>(exec, kind, d_y, x1, gamma, mean, rstd, d_residual, d_x1);
  dropout_backward<T>(exec, desc, step, d_x1, d_branch);
  if (d_bias.extent(0) != 0) {
    sum_rows<T>(exec, d_branch, scratch, Accumulate::yes, d_bias);
  }
}

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_IMPL_RESIDUAL_NORM_REFERENCE_HPP_

// kernels/residual_norm.hpp — the residual addition with the norm that follows it: bias,
// dropout, addition and norm in one pass over memory, each way.
//
//   x1 = residual + dropout(branch + bias);   y = N(x1) = x1_hat gamma + beta
//   d_x1 = N'(d_y) + d_residual;   d_branch = mask scale d_x1;
//   d_gamma = sum of d_y x1_hat,  d_beta = sum of d_y,  d_bias = sum of d_branch (rows)
// Saved for backward: x1, mean and rstd of its rows; the mask is drawn again. The same
// bits as the separate kernels of dropout.hpp and norm.hpp
// (impl/residual_norm_reference.hpp). docs/math/residual_norm.md
#ifndef TRIREME_KERNELS_RESIDUAL_NORM_HPP_
#define TRIREME_KERNELS_RESIDUAL_NORM_HPP_

#include "base/exec.hpp"
#include "kernels/dropout.hpp"
#include "kernels/norm.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// branch, residual, x1, y: (rows, h); bias, gamma, beta: (h); mean, rstd: (rows). x1 may
// alias branch or residual; y may alias branch. Null Views: no bias; of an RMS norm, beta
// and mean.
template <class T>
void residual_norm_forward(const Exec& exec, NormKind kind, const DropoutDesc& desc,
                           StepStateView step, View2<const T> branch, View1<const T> bias,
                           View2<const T> residual, View1<const T> gamma,
                           View1<const T> beta, double epsilon, View2<T> x1, View2<T> y,
                           View1<Accumulator<T>> mean, View1<Accumulator<T>> rstd);

// d_residual: the gradient of x1 that by-passes the norm. d_x1 (= the residual's
// gradient) may alias it or d_y. d_branch is a null View where nothing is dropped: it is
// d_x1 then, and not written twice. Of d_gamma, d_beta and d_bias sums over blocks of
// rows are left, (partial_count(rows, h), h) each, for add_partials(); without a bias
// there are none of it.
//
// Of a layer norm with a bias d_residual may be a null View: where the norm is the last
// that is done to the sum, nothing by-passes it (post-norm). What goes on along the
// residual branch is y then, and d_y2 its gradient from there, which is added to d_y, as
// it is stored; null: none. d_x1 may alias it.
template <class T>
void residual_norm_backward(const Exec& exec, NormKind kind, const DropoutDesc& desc,
                            StepStateView step, View2<const T> d_y, View2<const T> x1,
                            View1<const T> gamma, View1<const Accumulator<T>> mean,
                            View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                            View2<T> d_x1, View2<T> d_branch,
                            const NormPartials<Accumulator<T>>& norm_partials,
                            View2<Accumulator<T>> bias_partials,
                            View2<const T> d_y2 = {});

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_RESIDUAL_NORM_HPP_

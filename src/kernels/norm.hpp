// kernels/norm.hpp — normalisation over the last dimension: layer norm (Ba et al. 2016)
// and RMS norm (Zhang & Sennrich 2019).
//
//   layernorm: y = (x - mean) * rstd * gamma + beta;   mean, variance over h;
//              rstd = (variance + eps)^-1/2
//   rms:       y = x * rstd * gamma;   rstd = (mean of x^2 + eps)^-1/2
// An RMS norm has neither mean nor beta: null Views stand in their places, and in those
// of beta's gradient. Saved for backward: mean and rstd per row. Derivation:
// docs/math/norm.md
#ifndef TRIREME_KERNELS_NORM_HPP_
#define TRIREME_KERNELS_NORM_HPP_

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

enum class NormKind { layernorm, rms };

template <class T>
void norm_forward(const Exec& exec, NormKind kind, View2<const T> x,  // (rows, h)
                  View1<const T> gamma, View1<const T> beta, double epsilon,
                  View2<T> y,  // (rows, h)
                  View1<Accumulator<T>> mean,
                  View1<Accumulator<T>> rstd);  // (rows)

// d_x = gradient through the norm, plus `d_residual` (the gradient that by-passes the
// norm along the residual branch; null View: none). d_x may alias d_residual or d_y.
template <class T>
void norm_backward_input(const Exec& exec, NormKind kind, View2<const T> d_y,
                         View2<const T> x, View1<const T> gamma,
                         View1<const Accumulator<T>> mean,
                         View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                         View2<T> d_x);

// The same, and beside it sums over blocks of rows of the gradients of gamma and beta,
// (partial_count(rows, h), h) each: add_partials() adds them up, now or later, so that no
// pass over the rows is needed for them.
template <class A>
struct NormPartials {
  View2<A> gamma, beta;
};
template <class T>
void norm_backward(const Exec& exec, NormKind kind, View2<const T> d_y, View2<const T> x,
                   View1<const T> gamma, View1<const Accumulator<T>> mean,
                   View1<const Accumulator<T>> rstd, View2<const T> d_residual,
                   View2<T> d_x, const NormPartials<Accumulator<T>>& partials);

// The weight's part by itself, to the same bits: d_gamma = or += sum over rows of d_y *
// x_hat; d_beta = or += sum over rows of d_y. The order of the sums is fixed
// (deterministic). `scratch` holds partial sums: norm_scratch_elements(h) elements.
index_t norm_scratch_elements(index_t h);
template <class T, class G = Accumulator<T>>
void norm_backward_weight(const Exec& exec, NormKind kind, View2<const T> d_y,
                          View2<const T> x, View1<const Accumulator<T>> mean,
                          View1<const Accumulator<T>> rstd, View1<Accumulator<T>> scratch,
                          Accumulate accumulate, View1<G> d_gamma, View1<G> d_beta);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_NORM_HPP_

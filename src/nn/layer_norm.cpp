// nn/layer_norm.cpp — see layer_norm.hpp.
#include "nn/layer_norm.hpp"

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/norm.hpp"
#include "kernels/residual_norm.hpp"
#include "tensor/arena.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {
namespace {

constexpr kernels::NormKind kKind = kernels::NormKind::layernorm;

}  // namespace

template <class T>
LayerNorm<T>::LayerNorm(const Builder<T>& builder, const std::string& name, index_t h)
    : weight_(builder.add({.name = name + "/weight",
                           .shard = replicated({h}),
                           .init = Initializer::constant(1),
                           .in_sequence_region = true})),
      bias_(builder.add({.name = name + "/bias",
                         .shard = replicated({h}),
                         .init = Initializer::constant(0),
                         .in_sequence_region = true})) {}

template <class T>
typename LayerNorm<T>::Saved LayerNorm<T>::statistics(const Context& context,
                                                      View2<const T> x) const {
  const auto rows = static_cast<index_t>(x.extent(0));
  const auto mean = context.saved->vector<Accumulator<T>>(Category::norm, rows);
  const auto rstd = context.saved->vector<Accumulator<T>>(Category::norm, rows);
  return {x, mean, rstd};
}

template <class T>
typename LayerNorm<T>::Partials LayerNorm<T>::take_partials(const Context& context,
                                                            View2<const T> x) {
  const auto h = static_cast<index_t>(x.extent(1));
  const index_t blocks = kernels::partial_count(static_cast<index_t>(x.extent(0)), h);
  const auto gamma = context.held.matrix<Accumulator<T>>(Category::gradient, blocks, h);
  const auto beta = context.held.matrix<Accumulator<T>>(Category::gradient, blocks, h);
  return {gamma, beta};
}

template <class T>
void LayerNorm<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                           Saved& saved) const {
  saved = statistics(context, x);
  kernels::norm_forward<T>(context.exec, kKind, x, weight_.vector(), bias_.vector(),
                           kLayerNormEpsilon, y, saved.mean, saved.rstd);
}

template <class T>
kernels::DecodeInput<T> LayerNorm<T>::decode_input(View2<const T> x) const {
  kernels::DecodeInput<T> input;
  input.rows = x;
  input.gamma = weight_.vector();
  input.beta = bias_.vector();
  input.epsilon = kLayerNormEpsilon;
  return input;
}

template <class T>
void LayerNorm<T>::forward_residual(const Context& context,
                                    const kernels::DropoutDesc& dropout,
                                    View2<const T> branch, View1<const T> bias,
                                    View2<const T> residual, View2<T> sum, View2<T> y,
                                    Saved& saved) const {
  saved = statistics(context, as_const(sum));
  kernels::residual_norm_forward<T>(context.exec, kKind, dropout, context.step, branch,
                                    bias, residual, weight_.vector(), bias_.vector(),
                                    kLayerNormEpsilon, sum, y, saved.mean, saved.rstd);
}

template <class T>
void LayerNorm<T>::forward_again(const Context& context, const Values& values,
                                 const Saved& saved, View2<T> y) {
  const ArenaScope scope(context.scratch);
  const auto rows = static_cast<index_t>(saved.x.extent(0));
  const auto mean = context.scratch.vector<Accumulator<T>>(Category::norm, rows);
  const auto rstd = context.scratch.vector<Accumulator<T>>(Category::norm, rows);
  kernels::norm_forward<T>(context.exec, kKind, saved.x, values.weight, values.bias,
                           kLayerNormEpsilon, y, mean, rstd);
}

template <class T>
typename LayerNorm<T>::Partials LayerNorm<T>::backward(const Context& context,
                                                       View2<const T> d_y,
                                                       const Saved& saved,
                                                       View2<const T> d_residual,
                                                       View2<T> d_x) const {
  const Partials partials = take_partials(context, saved.x);
  kernels::norm_backward<T>(context.exec, kKind, d_y, saved.x, weight_.vector(),
                            as_const(saved.mean), as_const(saved.rstd), d_residual, d_x,
                            partials);
  return partials;
}

template <class T>
typename LayerNorm<T>::Partials LayerNorm<T>::backward_residual(
    const Context& context, const BranchGradient<T>& branch, View2<const T> d_y,
    const Saved& saved, View2<const T> d_residual, View2<T> d_sum) const {
  const Partials partials = take_partials(context, saved.x);
  kernels::residual_norm_backward<T>(context.exec, kKind, branch.dropout, context.step,
                                     d_y, saved.x, weight_.vector(), as_const(saved.mean),
                                     as_const(saved.rstd), d_residual, d_sum,
                                     branch.d_branch, partials, branch.bias_partials);
  return partials;
}

template <class T>
void LayerNorm<T>::backward_input(const Context& context, View2<const T> d_y,
                                  const Saved& saved, View2<const T> d_residual,
                                  View2<T> d_x) const {
  kernels::norm_backward_input<T>(context.exec, kKind, d_y, saved.x, weight_.vector(),
                                  as_const(saved.mean), as_const(saved.rstd), d_residual,
                                  d_x);
}

template <class T>
void LayerNorm<T>::backward_weight(const Context& context, View2<const T> d_y,
                                   const Saved& saved) const {
  const ArenaScope scope(context.scratch);
  const auto h = static_cast<index_t>(d_y.extent(1));
  const auto partial = context.scratch.vector<Accumulator<T>>(
      Category::gradient, kernels::norm_scratch_elements(h));
  const kernels::Accumulate accumulate = weight_.begin_gradient();
  TRIREME_REQUIRE(bias_.begin_gradient() == accumulate,
                  "the gradients of '{}' and '{}' are written together", weight_.name(),
                  bias_.name());
  weight_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    kernels::norm_backward_weight<T, G>(
        context.exec, kKind, d_y, saved.x, as_const(saved.mean), as_const(saved.rstd),
        partial, accumulate, weight_.template vector_gradient<G>(),
        bias_.template vector_gradient<G>());
  });
}

#define TRIREME_INSTANTIATE(T) template class LayerNorm<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn

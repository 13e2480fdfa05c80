// nn/norm.cpp — see norm.hpp.
//
// Which norm it is, the kernels are told; here the difference is which Views are null: an
// RMS norm has no bias, and saves no means. A backward pass by itself and one that makes
// a branch's gradient as well are two kernels, so that a norm at the end of a stack,
// which has no branch before it, does not pay for one.
#include "nn/norm.hpp"

#include "base/error.hpp"
#include "base/types.hpp"
#include "kernels/norm.hpp"
#include "kernels/residual_norm.hpp"
#include "tensor/arena.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::nn {

template <class T>
Norm<T>::Norm(const Builder<T>& builder, const std::string& name, index_t h,
              const NormForm& form)
    : form_(form),
      weight_(builder.add({.name = name + "/weight",
                           .shard = replicated({h}),
                           .init = Initializer::constant(1),
                           .in_sequence_region = true})) {
  if (form.kind == kernels::NormKind::rms) return;
  bias_ = builder.add({.name = name + "/bias",
                       .shard = replicated({h}),
                       .init = Initializer::constant(0),
                       .in_sequence_region = true});
}

template <class T>
typename Norm<T>::Saved Norm<T>::statistics(const Context& context,
                                            View2<const T> x) const {
  const auto rows = static_cast<index_t>(x.extent(0));
  Saved saved{.x = x};
  if (bias_) saved.mean = context.saved->vector<Accumulator<T>>(Category::norm, rows);
  saved.rstd = context.saved->vector<Accumulator<T>>(Category::norm, rows);
  return saved;
}

template <class T>
typename Norm<T>::Partials Norm<T>::take_partials(const Context& context,
                                                  View2<const T> x) const {
  const auto h = static_cast<index_t>(x.extent(1));
  const index_t blocks = kernels::partial_count(static_cast<index_t>(x.extent(0)), h);
  Partials partials;
  partials.gamma = context.held.matrix<Accumulator<T>>(Category::gradient, blocks, h);
  if (bias_) {
    partials.beta = context.held.matrix<Accumulator<T>>(Category::gradient, blocks, h);
  }
  return partials;
}

template <class T>
void Norm<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                      Saved& saved) const {
  saved = statistics(context, x);
  kernels::norm_forward<T>(context.exec, form_.kind, x, weight_.vector(), own_bias(),
                           form_.epsilon, y, saved.mean, saved.rstd);
}

template <class T>
kernels::DecodeInput<T> Norm<T>::decode_input(View2<const T> x) const {
  kernels::DecodeInput<T> input;
  input.rows = x;
  input.gamma = weight_.vector();
  input.beta = own_bias();
  input.epsilon = form_.epsilon;
  return input;
}

template <class T>
void Norm<T>::forward_residual(const Context& context,
                               const kernels::DropoutDesc& dropout, View2<const T> branch,
                               View1<const T> bias, View2<const T> residual, View2<T> sum,
                               View2<T> y, Saved& saved) const {
  saved = statistics(context, as_const(sum));
  kernels::residual_norm_forward<T>(context.exec, form_.kind, dropout, context.step,
                                    branch, bias, residual, weight_.vector(), own_bias(),
                                    form_.epsilon, sum, y, saved.mean, saved.rstd);
}

template <class T>
void Norm<T>::forward_again(const Context& context, const Values& values,
                            const Saved& saved, View2<T> y) {
  const ArenaScope scope(context.scratch);
  const auto rows = static_cast<index_t>(saved.x.extent(0));
  View1<Accumulator<T>> mean;
  if (values.form.kind == kernels::NormKind::layernorm) {
    mean = context.scratch.vector<Accumulator<T>>(Category::norm, rows);
  }
  const auto rstd = context.scratch.vector<Accumulator<T>>(Category::norm, rows);
  kernels::norm_forward<T>(context.exec, values.form.kind, saved.x, values.weight,
                           values.bias, values.form.epsilon, y, mean, rstd);
}

template <class T>
typename Norm<T>::Partials Norm<T>::backward(const Context& context, View2<const T> d_y,
                                             const Saved& saved,
                                             View2<const T> d_residual,
                                             View2<T> d_x) const {
  const Partials partials = take_partials(context, saved.x);
  kernels::norm_backward<T>(context.exec, form_.kind, d_y, saved.x, weight_.vector(),
                            as_const(saved.mean), as_const(saved.rstd), d_residual, d_x,
                            partials);
  return partials;
}

template <class T>
typename Norm<T>::Partials Norm<T>::backward_residual(
    const Context& context, const BranchGradient<T>& branch, View2<const T> d_y,
    const Saved& saved, View2<const T> d_residual, View2<T> d_sum) const {
  const Partials partials = take_partials(context, saved.x);
  kernels::residual_norm_backward<T>(
      context.exec, form_.kind, branch.dropout, context.step, d_y, saved.x,
      weight_.vector(), as_const(saved.mean), as_const(saved.rstd), d_residual, d_sum,
      branch.d_branch, partials, branch.bias_partials);
  return partials;
}

template <class T>
typename Norm<T>::Partials Norm<T>::backward_post(const Context& context,
                                                  const BranchGradient<T>& branch,
                                                  View2<const T> d_y, View2<const T> d_y2,
                                                  const Saved& saved,
                                                  View2<T> d_sum) const {
  const Partials partials = take_partials(context, saved.x);
  kernels::residual_norm_backward<T>(
      context.exec, form_.kind, branch.dropout, context.step, d_y, saved.x,
      weight_.vector(), as_const(saved.mean), as_const(saved.rstd), {}, d_sum,
      branch.d_branch, partials, branch.bias_partials, d_y2);
  return partials;
}

template <class T>
void Norm<T>::backward_input(const Context& context, View2<const T> d_y,
                             const Saved& saved, View2<const T> d_residual,
                             View2<T> d_x) const {
  kernels::norm_backward_input<T>(context.exec, form_.kind, d_y, saved.x,
                                  weight_.vector(), as_const(saved.mean),
                                  as_const(saved.rstd), d_residual, d_x);
}

template <class T>
void Norm<T>::backward_weight(const Context& context, View2<const T> d_y,
                              const Saved& saved) const {
  const ArenaScope scope(context.scratch);
  const auto h = static_cast<index_t>(d_y.extent(1));
  const auto partial = context.scratch.vector<Accumulator<T>>(
      Category::gradient, kernels::norm_scratch_elements(h));
  const kernels::Accumulate accumulate = weight_.begin_gradient();
  TRIREME_REQUIRE(!bias_ || bias_->begin_gradient() == accumulate,
                  "the gradients of '{}' and of its bias are written together",
                  weight_.name());
  weight_.visit_gradient_type([&]<class G>(std::type_identity<G>) {
    View1<G> d_bias;
    if (bias_) d_bias = bias_->template vector_gradient<G>();
    kernels::norm_backward_weight<T, G>(context.exec, form_.kind, d_y, saved.x,
                                        as_const(saved.mean), as_const(saved.rstd),
                                        partial, accumulate,
                                        weight_.template vector_gradient<G>(), d_bias);
  });
}

#define TRIREME_INSTANTIATE(T) template class Norm<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn

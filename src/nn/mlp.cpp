// nn/mlp.cpp — see mlp.hpp.
#include "nn/mlp.hpp"

#include "base/exec.hpp"
#include "base/timers.hpp"
#include "kernels/activation.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/reductions.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
Mlp<T>::Mlp(const Builder<T>& builder, const std::string& name,
            const config::ModelConfig& config)
    : fc1_(builder, name + "/fc1", config.hidden, config.ffn_hidden, config.init_std),
      fc2_(builder, name + "/fc2", config.ffn_hidden, config.hidden,
           config.output_init_std()) {}

template <class T>
View2<T> Mlp<T>::activate(const Context& context, View2<const T> x, Saved& saved) const {
  saved.x = x;
  saved.pre_activation =
      context.saved->matrix<T>(Category::mlp, context.rows(), fc1_.out_tp());
  Arena& memory = context.recompute.selective ? context.scratch : *context.saved;
  const auto activation = memory.matrix<T>(Category::mlp, context.rows(), fc1_.out_tp());
  saved.activation = context.recompute.selective ? View2<T>() : activation;
  fc1_.forward_gelu(context, x, saved.pre_activation, activation);
  return activation;
}

template <class T>
void Mlp<T>::forward(const Context& context, View2<const T> x, View2<T> y,
                     Saved& saved) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  const ArenaScope scope(context.scratch);
  fc2_.forward(context, as_const(activate(context, x, saved)), y);
}

template <class T>
void Mlp<T>::forward_residual(const Context& context, View2<const T> x,
                              View2<const T> residual, View2<T> y, Saved& saved) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  const ArenaScope scope(context.scratch);
  fc2_.forward_residual(context, as_const(activate(context, x, saved)), residual, y);
}

template <class T>
void Mlp<T>::decode(const Context& context, const kernels::DecodeInput<T>& input,
                    View2<const T> residual, View2<T> y) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  const ArenaScope scope(context.scratch);
  kernels::DecodeOutput<T> activation;
  activation.y = context.scratch.matrix<T>(Category::mlp, context.rows(), fc1_.out_tp());
  activation.activation = kernels::Activation::gelu_tanh;
  fc1_.decode(context, input, activation);
  kernels::DecodeInput<T> activated;
  activated.rows = activation.y;
  fc2_.decode(context, activated, residual, y);
}

template <class T>
comm::Request Mlp<T>::start_backward_input(const Context& context, View2<const T> d_y,
                                           const Saved& saved, View2<T> d_x,
                                           Held& held) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  held.d_y = fc2_.whole_output_gradient(context, d_y);
  held.d_pre_activation =
      context.held.matrix<T>(Category::gradient, context.rows(), fc1_.out_tp());
  held.fc1_bias_partials = context.held.matrix<Accumulator<T>>(
      Category::gradient, kernels::tiled_partial_count(context.rows(), fc1_.out_tp()),
      fc1_.out_tp());
  fc2_.backward_input(context, held.d_y,
                      held.d_pre_activation);  // of the activation, for now
  kernels::activation_backward<T>(
      context.exec, kernels::Activation::gelu_tanh, as_const(held.d_pre_activation),
      as_const(saved.pre_activation), held.d_pre_activation, held.fc1_bias_partials);
  return fc1_.start_backward_input(context, as_const(held.d_pre_activation), d_x);
}

template <class T>
void Mlp<T>::backward_weight(const Context& context, const Saved& saved, const Held& held,
                             PartialGradients<T>& gradients) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  const ArenaScope scope(context.scratch);
  GatheredRows<T> x = fc1_.start_weight_input(context, saved.x);  // beside fc2's products
  View2<T> activation = saved.activation;
  if (context.recompute.selective) {
    activation = context.scratch.matrix<T>(Category::mlp, context.rows(), fc1_.out_tp());
    kernels::activation_forward<T>(context.exec, kernels::Activation::gelu_tanh,
                                   as_const(saved.pre_activation), activation);
  }
  fc2_.backward_weight(context, held.d_y, as_const(activation));
  fc1_.backward_weight(context, as_const(held.d_pre_activation), std::move(x));
  fc1_.backward_bias(as_const(held.fc1_bias_partials), gradients);
}

#define TRIREME_INSTANTIATE(T) template class Mlp<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn

// nn/mlp.cpp — see mlp.hpp.
//
// The activation is part of the first product's epilogue where it is not gated, since a
// pass of its own would read and write the widest rows of a layer once more. What is kept
// is decided where it is made: both sides of the activation, the one before it, or that
// behind it where it tells the slope. Gradients of both sides share memory, because each
// number of one is made of the same number of the other.
#include "nn/mlp.hpp"

#include <vector>

#include "base/exec.hpp"
#include "base/timers.hpp"
#include "kernels/activation.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/reductions.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
Mlp<T>::Mlp(const Builder<T>& builder, const std::string& name, const MlpForm& form)
    : form_(form),
      fc1_(builder, name + "/fc1", form.hidden, (form.is_gated ? 2 : 1) * form.ffn_hidden,
           {.init = Initializer::normal(form.in_std),
            .has_bias = form.has_bias,
            .blocks = form.is_gated
                          ? std::vector<index_t>{form.ffn_hidden, form.ffn_hidden}
                          : std::vector<index_t>{}}),
      fc2_(builder, name + "/fc2", form.ffn_hidden, form.hidden,
           {.init = Initializer::normal(form.out_std), .has_bias = form.has_bias}) {}

template <class T>
View2<T> Mlp<T>::activate(const Context& context, View2<const T> x, Saved& saved) const {
  saved.x = x;
  if (saves_activation_alone()) {
    const auto y = context.saved->matrix<T>(Category::mlp, context.rows(), columns());
    fc1_.forward_activated(context, x, form_.activation, {}, y);
    saved.activation = saved.pre_activation = y;
    return y;
  }
  saved.pre_activation =
      context.saved->matrix<T>(Category::mlp, context.rows(), fc1_.out_tp());
  Arena& memory = context.recompute.selective ? context.scratch : *context.saved;
  const auto activation = memory.matrix<T>(Category::mlp, context.rows(), columns());
  saved.activation = context.recompute.selective ? View2<T>() : activation;
  if (form_.is_gated) {
    fc1_.forward(context, x, saved.pre_activation);
    activate_again(context, saved, activation);
  } else {
    fc1_.forward_activated(context, x, form_.activation, saved.pre_activation,
                           activation);
  }
  return activation;
}

template <class T>
void Mlp<T>::activate_again(const Context& context, const Saved& saved,
                            View2<T> y) const {
  const View2<const T> z = as_const(saved.pre_activation);
  if (form_.is_gated) {
    kernels::gated_forward<T>(context.exec, form_.activation, z, y);
  } else {
    kernels::activation_forward<T>(context.exec, form_.activation, z, y);
  }
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
  activation.y = context.scratch.matrix<T>(Category::mlp, context.rows(), columns());
  activation.activation = form_.activation;
  fc1_.decode(context, input, activation);
  kernels::DecodeInput<T> activated;
  activated.rows = activation.y;
  fc2_.decode(context, activated, residual, y);
}

template <class T>
void Mlp<T>::add_to(kernels::DecodeLayer<T>& layer) const {
  layer.fc1 = fc1_.weight();
  layer.fc1_bias = fc1_.bias();
  layer.fc2 = fc2_.weight();
  layer.fc2_bias = fc2_.bias();
}

template <class T>
comm::Request Mlp<T>::start_backward_input(const Context& context, View2<const T> d_y,
                                           const Saved& saved, View2<T> d_x,
                                           Held& held) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  held.d_y = fc2_.whole_output_gradient(context, d_y);
  held.d_pre_activation =
      context.held.matrix<T>(Category::gradient, context.rows(), fc1_.out_tp());
  if (fc1_.has_bias()) {
    held.fc1_bias_partials = context.held.matrix<Accumulator<T>>(
        Category::gradient, kernels::tiled_partial_count(context.rows(), fc1_.out_tp()),
        fc1_.out_tp());
  }
  backward_activation(context, saved, held);
  return fc1_.start_backward_input(context, as_const(held.d_pre_activation), d_x);
}

// Where it is not gated both gradients have the same columns, and the same memory.
template <class T>
void Mlp<T>::backward_activation(const Context& context, const Saved& saved,
                                 Held& held) const {
  const View2<T>& d_z = held.d_pre_activation;
  const View2<const T> z = as_const(saved.pre_activation);
  if (!form_.is_gated) {
    fc2_.backward_input(context, held.d_y, d_z);
    kernels::activation_backward<T>(context.exec, form_.activation, as_const(d_z), z, d_z,
                                    held.fc1_bias_partials);
    return;
  }
  const ArenaScope scope(context.scratch);
  const auto d_activation =
      context.scratch.matrix<T>(Category::gradient, context.rows(), columns());
  fc2_.backward_input(context, held.d_y, d_activation);
  kernels::gated_backward<T>(context.exec, form_.activation, as_const(d_activation), z,
                             d_z);
  if (fc1_.has_bias()) {
    kernels::sum_row_blocks<T>(context.exec, as_const(d_z), held.fc1_bias_partials);
  }
}

template <class T>
void Mlp<T>::backward_weight(const Context& context, const Saved& saved, const Held& held,
                             PartialGradients<T>& gradients) const {
  const ComponentRegion region(context.exec.timers(), Component::mlp);
  const ArenaScope scope(context.scratch);
  GatheredRows<T> x = fc1_.start_weight_input(context, saved.x);  // beside fc2's products
  View2<T> activation = saved.activation;
  if (activation.extent(0) == 0) {
    activation = context.scratch.matrix<T>(Category::mlp, context.rows(), columns());
    activate_again(context, saved, activation);
  }
  fc2_.backward_weight(context, held.d_y, as_const(activation));
  fc1_.backward_weight(context, as_const(held.d_pre_activation), std::move(x));
  fc1_.backward_bias(as_const(held.fc1_bias_partials), gradients);
}

#define TRIREME_INSTANTIATE(T) template class Mlp<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::nn

// nn/mlp.hpp — feed-forward block, tensor-parallel over f.
//
//   y = W2 f(W1 x + b1);   gated: y = W2 (f(u) * v), [u; v] = W1 x + b1
// (b2 is left to the residual addition that follows; which activation f is, the form
// says). Saves x, the pre-activation W1 x + b1 and the activation: (rows, 2 f_tp) besides
// x, gated (rows, 3 f_tp); with selective recomputation the weight pass makes the
// activation again. Of ReLU, whose slope its result tells, it saves the activation alone.
// Holds for the weight pass d_y, the gradient of the pre-activation and partial sums of
// its rows.
#ifndef TRIREME_NN_MLP_HPP_
#define TRIREME_NN_MLP_HPP_

#include <string>

#include "base/types.hpp"
#include "comm/group.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/decode_linear.hpp"
#include "nn/layer_form.hpp"
#include "nn/linear.hpp"
#include "nn/weight_gradients.hpp"

namespace trireme::nn {

template <class T>
class Mlp {
 public:
  struct Saved {
    View2<const T> x;         // (rows, h)
    View2<T> pre_activation;  // (rows, f_tp), with the bias; gated (rows, 2 f_tp)
    View2<T> activation;      // (rows, f_tp); null: is made again. Of ReLU both are this
  };
  struct Held {
    View2<const T> d_y;                       // (rows, h): all rows
    View2<T> d_pre_activation;                // as the pre-activation
    View2<Accumulator<T>> fc1_bias_partials;  // (blocks of rows, columns of that)
  };

  Mlp(const Builder<T>& builder, const std::string& name, const MlpForm& form);

  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // y + b2 + residual, where there is no other tensor rank.
  void forward_residual(const Context& context, View2<const T> x, View2<const T> residual,
                        View2<T> y, Saved& saved) const;
  // The same of a step of generation where kernels::has_decode_linear(), whatever ranks
  // there are; saves nothing.
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              View2<const T> residual, View2<T> y) const;
  // What of a layer's step in one launch is the MLP's.
  void add_to(kernels::DecodeLayer<T>& layer) const;
  // d_y must live until backward_weight; d_x is there after wait().
  comm::Request start_backward_input(const Context& context, View2<const T> d_y,
                                     const Saved& saved, View2<T> d_x, Held& held) const;
  // The bias's gradient comes with add_all() of `gradients`, until when `held` must live.
  void backward_weight(const Context& context, const Saved& saved, const Held& held,
                       PartialGradients<T>& gradients) const;

  // The output bias's gradient, from what the residual addition's backward pass leaves.
  void backward_output_bias(View2<const Accumulator<T>> partials,
                            PartialGradients<T>& gradients) const {
    fc2_.backward_bias(partials, gradients);
  }

  View1<const T> output_bias() const { return fc2_.bias(); }
  bool has_bias() const { return fc2_.has_bias(); }
  // Whether a step of generation has what decode() wants of an MLP.
  bool has_decode() const {
    return !form_.is_gated && form_.activation == kernels::Activation::gelu_tanh;
  }

 private:
  // Columns of the activation, f_tp.
  index_t columns() const { return form_.is_gated ? fc1_.out_tp() / 2 : fc1_.out_tp(); }
  // Whether the activation is all that backward needs of both.
  bool saves_activation_alone() const {
    return !form_.is_gated && form_.activation == kernels::Activation::relu;
  }
  // The activation once more, from the pre-activation.
  void activate_again(const Context& context, const Saved& saved, View2<T> y) const;
  // The gradient of the pre-activation from that of the activation, which is made here.
  void backward_activation(const Context& context, const Saved& saved, Held& held) const;
  // The activation, kept or in scratch memory, and what is saved.
  View2<T> activate(const Context& context, View2<const T> x, Saved& saved) const;

  MlpForm form_;
  ColumnParallelLinear<T> fc1_;
  RowParallelLinear<T> fc2_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_MLP_HPP_

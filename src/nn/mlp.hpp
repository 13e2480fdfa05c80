// nn/mlp.hpp — feed-forward block, tensor-parallel over f.
//
//   y = W2 gelu(W1 x + b1)   (b2 is left to the residual addition that follows)
// Saves x, the pre-activation W1 x + b1 and the activation: (rows, 2 f_tp) besides x;
// with selective recomputation the weight pass makes the activation again. Holds for the
// weight pass d_y, the gradient of the pre-activation and partial sums of its rows.
#ifndef TRIREME_NN_MLP_HPP_
#define TRIREME_NN_MLP_HPP_

#include <string>

#include "base/types.hpp"
#include "comm/group.hpp"
#include "config/deck.hpp"
#include "kernels/decode_linear.hpp"
#include "nn/linear.hpp"
#include "nn/weight_gradients.hpp"

namespace trireme::nn {

template <class T>
class Mlp {
 public:
  struct Saved {
    View2<const T> x;         // (rows, h)
    View2<T> pre_activation;  // (rows, f_tp), with the bias
    View2<T> activation;      // (rows, f_tp); null: is made again
  };
  struct Held {
    View2<const T> d_y;                       // (rows, h): all rows
    View2<T> d_pre_activation;                // (rows, f_tp)
    View2<Accumulator<T>> fc1_bias_partials;  // (blocks of rows, f_tp)
  };

  Mlp(const Builder<T>& builder, const std::string& name,
      const config::ModelConfig& config);

  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // y + b2 + residual, where there is no other tensor rank.
  void forward_residual(const Context& context, View2<const T> x, View2<const T> residual,
                        View2<T> y, Saved& saved) const;
  // The same of a step of generation where kernels::has_decode_linear(), whatever ranks
  // there are; saves nothing.
  void decode(const Context& context, const kernels::DecodeInput<T>& input,
              View2<const T> residual, View2<T> y) const;
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

 private:
  // The activation, kept or in scratch memory, and what is saved.
  View2<T> activate(const Context& context, View2<const T> x, Saved& saved) const;

  ColumnParallelLinear<T> fc1_;
  RowParallelLinear<T> fc2_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_MLP_HPP_

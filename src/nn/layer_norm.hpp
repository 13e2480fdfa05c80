// nn/layer_norm.hpp — layer normalisation with its parameters (the same on every rank of
// the tensor group), alone or together with the residual addition before it. Saves x, and
// mean and rstd of every row.
#ifndef TRIREME_NN_LAYER_NORM_HPP_
#define TRIREME_NN_LAYER_NORM_HPP_

#include <string>

#include "base/exec.hpp"
#include "base/types.hpp"
#include "kernels/decode_linear.hpp"
#include "kernels/dropout.hpp"
#include "kernels/norm.hpp"
#include "nn/context.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

inline constexpr double kLayerNormEpsilon = 1e-5;  // GPT-2, Megatron-LM

// What is made of the gradient d of a sum residual + dropout(branch + bias), by the pass
// that writes d and has its rows at hand.
template <class T>
struct BranchGradient {
  kernels::DropoutDesc dropout = {};
  View2<T> d_branch = {};  // (rows, h); null where nothing is dropped: it is d itself
  View2<Accumulator<T>> bias_partials = {};  // (blocks, h): sums of d_branch

  // Whether anything is wanted.
  explicit operator bool() const { return bias_partials.extent(0) > 0; }
};

template <class T>
class LayerNorm {
 public:
  struct Saved {
    View2<const T> x;                  // (rows, h)
    View1<Accumulator<T>> mean, rstd;  // (rows)
  };
  // The parameters' values, or a copy of them.
  struct Values {
    View1<const T> weight, bias;  // (h)
  };

  // Sums over blocks of rows of the parameters' gradients: all that a weight pass needs
  // after a fused backward pass.
  using Partials = kernels::NormPartials<Accumulator<T>>;

  LayerNorm(const Builder<T>& builder, const std::string& name, index_t h);

  // y may not be x. The statistics are taken from context.saved.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // y as what a product of a step of generation makes for itself from x.
  kernels::DecodeInput<T> decode_input(View2<const T> x) const;
  // sum = residual + dropout(branch + bias), y = norm of sum, which is the saved x.
  void forward_residual(const Context& context, const kernels::DropoutDesc& dropout,
                        View2<const T> branch, View1<const T> bias,
                        View2<const T> residual, View2<T> sum, View2<T> y,
                        Saved& saved) const;
  // The parameters, from which the weight pass makes y again.
  Values values_for(const Context& context, WeightPass weight_pass) const {
    return {nn::values_for(context, weight_pass, weight_.vector()),
            nn::values_for(context, weight_pass, bias_.vector())};
  }
  // y of the forward pass, once more.
  static void forward_again(const Context& context, const Values& values,
                            const Saved& saved, View2<T> y);
  // d_x = gradient through the norm + d_residual (null: none); the sums for the weight
  // pass are left in context.held.
  Partials backward(const Context& context, View2<const T> d_y, const Saved& saved,
                    View2<const T> d_residual, View2<T> d_x) const;
  // The same of a norm whose x is such a sum, made by forward_residual() or by whoever
  // made x: beside the gradient of the sum what the branch wants of it.
  Partials backward_residual(const Context& context, const BranchGradient<T>& branch,
                             View2<const T> d_y, const Saved& saved,
                             View2<const T> d_residual, View2<T> d_sum) const;
  // The gradients come with add_all(), until when the partials must live.
  void backward_weight(const Partials& partials, PartialGradients<T>& gradients) const {
    gradients.gather(weight_, as_const(partials.gamma));
    gradients.gather(bias_, as_const(partials.beta));
  }

  // Each pass by itself: d_x = gradient through the norm + d_residual (null: none).
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<const T> d_residual, View2<T> d_x) const;
  void backward_weight(const Context& context, View2<const T> d_y,
                       const Saved& saved) const;

 private:
  Saved statistics(const Context& context, View2<const T> x) const;
  static Partials take_partials(const Context& context, View2<const T> x);

  ParamRef<T> weight_, bias_;  // (h)
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LAYER_NORM_HPP_

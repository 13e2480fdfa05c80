// nn/norm.hpp — a normalisation with its parameters (the same on every rank of the tensor
// group), alone or together with the residual addition before it: layer norm, with a
// bias, or RMS norm, without. Saves x, and mean (of a layer norm) and rstd of every row.
#ifndef TRIREME_NN_NORM_HPP_
#define TRIREME_NN_NORM_HPP_

#include <optional>
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

// Which norm; the default is that of GPT-2 and Megatron-LM.
struct NormForm {
  kernels::NormKind kind = kernels::NormKind::layernorm;
  double epsilon = 1e-5;
};

// What is made of the gradient d of a sum residual + dropout(branch + bias), by the pass
// that writes d and has its rows at hand.
template <class T>
struct BranchGradient {
  kernels::DropoutDesc dropout = {};
  View2<T> d_branch = {};  // (rows, h); null where nothing is dropped: it is d itself
  // (blocks, h): sums of d_branch; null where there is no bias.
  View2<Accumulator<T>> bias_partials = {};

  // Whether anything is wanted beside d.
  explicit operator bool() const {
    return bias_partials.extent(0) > 0 || d_branch.extent(0) > 0;
  }
};

template <class T>
class Norm {
 public:
  struct Saved {
    View2<const T> x;                  // (rows, h)
    View1<Accumulator<T>> mean, rstd;  // (rows)
  };
  // The parameters' values, or a copy of them.
  struct Values {
    View1<const T> weight, bias;  // (h)
    NormForm form;
  };

  // Sums over blocks of rows of the parameters' gradients: all that a weight pass needs
  // after a fused backward pass.
  using Partials = kernels::NormPartials<Accumulator<T>>;

  Norm(const Builder<T>& builder, const std::string& name, index_t h,
       const NormForm& form = {});

  // y may not be x. The statistics are taken from context.saved.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // y as what a product of a step of generation makes for itself from x.
  kernels::DecodeInput<T> decode_input(View2<const T> x) const;
  View1<const T> weight() const { return weight_.vector(); }
  // Null where there is none.
  View1<const T> own_bias() const { return bias_ ? bias_->vector() : View1<const T>(); }
  double epsilon() const { return form_.epsilon; }
  // sum = residual + dropout(branch + bias), y = norm of sum, which is the saved x.
  void forward_residual(const Context& context, const kernels::DropoutDesc& dropout,
                        View2<const T> branch, View1<const T> bias,
                        View2<const T> residual, View2<T> sum, View2<T> y,
                        Saved& saved) const;
  // The parameters, from which the weight pass makes y again.
  Values values_for(const Context& context, WeightPass weight_pass) const {
    return {nn::values_for(context, weight_pass, weight_.vector()),
            nn::values_for(context, weight_pass, own_bias()), form_};
  }
  // A copy of what backward_input() reads of them, in context.saved.
  Values saved_values(const Context& context) const;
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
  // The one of the two that the branch asks for.
  Partials backward_branch(const Context& context, const BranchGradient<T>& branch,
                           View2<const T> d_y, const Saved& saved,
                           View2<const T> d_residual, View2<T> d_sum) const {
    return branch ? backward_residual(context, branch, d_y, saved, d_residual, d_sum)
                  : backward(context, d_y, saved, d_residual, d_sum);
  }
  // The same where y is all that goes on, along the residual branch as well, whose
  // gradient is d_y2 (null: none): of a layer norm behind the sum.
  Partials backward_post(const Context& context, const BranchGradient<T>& branch,
                         View2<const T> d_y, View2<const T> d_y2, const Saved& saved,
                         View2<T> d_sum) const;
  // The gradients come with add_all(), until when the partials must live.
  void backward_weight(const Partials& partials, PartialGradients<T>& gradients) const {
    gradients.gather(weight_, as_const(partials.gamma));
    if (bias_) gradients.gather(*bias_, as_const(partials.beta));
  }

  // Each pass by itself: d_x = gradient through the norm + d_residual (null: none).
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<const T> d_residual, View2<T> d_x) const;
  // The same without d_residual, where the parameters are not in use.
  static void backward_input(const Context& context, const Values& values,
                             View2<const T> d_y, const Saved& saved, View2<T> d_x);
  void backward_weight(const Context& context, View2<const T> d_y,
                       const Saved& saved) const;

 private:
  Saved statistics(const Context& context, View2<const T> x) const;
  Partials take_partials(const Context& context, View2<const T> x) const;

  NormForm form_;
  ParamRef<T> weight_;               // (h)
  std::optional<ParamRef<T>> bias_;  // (h), of a layer norm
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_NORM_HPP_

// nn/post_norm_layer.hpp — one Transformer layer with its norms behind the residual
// additions (BERT; Devlin et al. 2019, after Vaswani et al. 2017).
//
//   x1 = N1(x + dropout(Attention(x) + bo));   y = N2(x1 + dropout(Mlp(x1) + b2))
// Each addition and the norm behind it are one pass over memory, each way. All of a
// gradient goes through the norms: that of x1 is what comes through the MLP plus what
// comes along the residual branch, and the pass of N1 takes both.
// Saves what its parts save, both sums, and x1; with selective recomputation x1 is made
// again. Holds, passes and memory as TransformerLayer (transformer_layer.hpp), whose
// dropout masks it has.
#ifndef TRIREME_NN_POST_NORM_LAYER_HPP_
#define TRIREME_NN_POST_NORM_LAYER_HPP_

#include "base/types.hpp"
#include "kernels/dropout.hpp"
#include "nn/attention.hpp"
#include "nn/dropout.hpp"
#include "nn/layer_form.hpp"
#include "nn/mlp.hpp"
#include "nn/norm.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
class PostNormLayer {
 public:
  struct Saved {
    typename Attention<T>::Saved attention;
    typename Norm<T>::Saved attention_norm, mlp_norm;
    typename Mlp<T>::Saved mlp;
  };
  struct Held {
    typename Attention<T>::Held attention;
    typename Mlp<T>::Held mlp;
    typename Norm<T>::Partials attention_norm_sums, mlp_norm_sums;
    // Gradients of the outputs of attention and MLP, with sums for their biases.
    BranchGradient<T> attention_branch, mlp_branch;
    // What selective recomputation makes x1 again from.
    typename Norm<T>::Values attention_norm;
  };

  // Of a layer norm with biases, and without cross attention.
  PostNormLayer(const Builder<T>& builder, const LayerForm& form);

  // x must live until backward_weight; y may not be x.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // With WeightPass::now the weight gradients are taken, too, beside the messages that
  // complete those of the inputs.
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<T> d_x, Held& held,
                      WeightPass weight_pass = WeightPass::later) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;

 private:
  // What the backward pass of a sum's norm is to make beside the gradient of the sum, and
  // memory for that: what is held is the branch's, which is the sum's where nothing is
  // dropped.
  struct SumGradient {
    BranchGradient<T> branch;
    View2<T> d_sum;
    View2<const T> d_branch;
  };
  // `d_sum`: for the sum's where something is dropped.
  SumGradient take_sum_gradient(const Context& context, random::Site site,
                                const View2<T>& d_sum) const;
  // d_x = what comes through attention + d_sum.
  void attention_input(const Context& context, const Saved& saved, const SumGradient& sum,
                       View2<T> d_x, Held& held, WeightPass weight_pass,
                       PartialGradients<T>& gradients,
                       View2<Accumulator<T>> qkv_bias) const;
  void attention_weight(const Context& context, const Saved& saved, const Held& held,
                        View2<Accumulator<T>> qkv_bias,
                        PartialGradients<T>& gradients) const;
  void mlp_weight(const Context& context, const Saved& saved, const Held& held,
                  PartialGradients<T>& gradients) const;
  kernels::DropoutDesc dropout(const Context& context, random::Site site) const {
    return dropout_of(context, dropout_, layer_, site);
  }

  index_t hidden_;
  double dropout_;
  std::uint16_t layer_;
  Attention<T> attention_;
  Norm<T> attention_norm_;
  Mlp<T> mlp_;
  Norm<T> mlp_norm_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_POST_NORM_LAYER_HPP_

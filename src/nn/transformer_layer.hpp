// nn/transformer_layer.hpp — one pre-LayerNorm Transformer layer (GPT-2; Radford et al.
// 2019).
//
//   x1 = x + dropout(Attention(LN1(x)) + bo);   y = x1 + dropout(Mlp(LN2(x1)) + b2)
// The addition that makes x1 and LN2 are one pass over memory, each way. The one that
// makes y is done by the MLP's product, where nothing is dropped and no tensor rank has a
// part of it; and backward by the pass that writes d_y, where that is a layer behind
// this one (leave_branch_gradient()).
// Saves what its parts save, and x1; with selective recomputation the norms' outputs are
// made again. backward_input goes from d_y to d_x and holds what
// backward_weight needs; the two may lie apart in the schedule. Of biases and norms it
// holds sums over blocks of rows. x, y and their gradients are local rows.
#ifndef TRIREME_NN_TRANSFORMER_LAYER_HPP_
#define TRIREME_NN_TRANSFORMER_LAYER_HPP_

#include "base/types.hpp"
#include "config/deck.hpp"
#include "kernels/dropout.hpp"
#include "nn/attention.hpp"
#include "nn/layer_norm.hpp"
#include "nn/mlp.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
class TransformerLayer {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved input_norm, mlp_norm;
    typename Attention<T>::Saved attention;
    typename Mlp<T>::Saved mlp;
  };
  struct Held {
    typename Attention<T>::Held attention;
    typename Mlp<T>::Held mlp;
    // Sums over blocks of rows, of the norms' parameters.
    typename LayerNorm<T>::Partials input_norm_sums, mlp_norm_sums;
    // Gradients of the outputs of attention and MLP, with sums for their biases.
    BranchGradient<T> attention_branch, mlp_branch;
    bool has_mlp_branch = false;  // made with d_y
    // What selective recomputation makes the norms' outputs again from.
    typename LayerNorm<T>::Values input_norm, mlp_norm;
  };

  // `layer` is the global number, from 0.
  TransformerLayer(const Builder<T>& builder, const config::ModelConfig& config,
                   index_t layer);

  // x must live until backward_weight, d_y until the weight gradients are taken where
  // they come now; y may not be x.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved) const;
  // With WeightPass::now the weight gradients are taken, too, beside the messages that
  // complete those of the inputs. `before`: what is made with d_x for the layer whose
  // output x is.
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<T> d_x, Held& held,
                      WeightPass weight_pass = WeightPass::later,
                      const BranchGradient<T>& before = {}) const;
  // What whoever writes the next d_y is to make with it, in `memory`, which must live
  // until the weight gradients are taken. Nothing where this layer needs a copy of d_y,
  // and makes it itself.
  BranchGradient<T> leave_branch_gradient(const Context& context, Held& held,
                                          WeightPass weight_pass, Arena& memory) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;

  // The forward pass of generation, which saves nothing for a backward pass. A step on a
  // GPU is five launches (kernels/decode_linear.hpp), and seven with a tensor group.
  void forward_cached(const Context& context, View2<const T> x, View2<T> y,
                      KvCache<T>& cache) const;

  index_t kv_columns() const { return attention_.kv_columns(); }

 private:
  void decode(const Context& context, View2<const T> x, View2<T> y,
              const KvCache<T>& cache) const;
  // The norm's output as the forward pass had it: kept, or made again in context.scratch.
  View2<const T> normed(const Context& context, const typename LayerNorm<T>::Values& norm,
                        const typename LayerNorm<T>::Saved& saved,
                        View2<const T> kept) const;
  // The MLP's branch with memory for it; a copy of d_y where nothing is dropped, if the
  // weight pass wants one.
  BranchGradient<T> mlp_branch(const Context& context, WeightPass weight_pass,
                               Arena& memory) const;
  bool keeps_copy(const Context& context, WeightPass weight_pass) const;
  void attention_weight(const Context& context, const Saved& saved, const Held& held,
                        View2<Accumulator<T>> qkv_bias,
                        PartialGradients<T>& gradients) const;
  void mlp_weight(const Context& context, const Saved& saved, const Held& held,
                  PartialGradients<T>& gradients) const;
  kernels::DropoutDesc dropout(const Context& context, random::Site site) const;

  index_t hidden_;
  double dropout_;
  std::uint16_t layer_;
  LayerNorm<T> input_norm_;
  Attention<T> attention_;
  LayerNorm<T> mlp_norm_;
  Mlp<T> mlp_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_TRANSFORMER_LAYER_HPP_

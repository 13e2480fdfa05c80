// nn/transformer_layer.hpp — one pre-norm Transformer layer (GPT-2; Radford et al. 2019),
// and a decoder's behind an encoder, with cross attention between its parts (T5; Raffel
// et al. 2020).
//
//   x1 = x + dropout(Attention(N1(x)) + bo);   y = x1 + dropout(Mlp(N2(x1)) + b2)
//   with cross attention: y = x2 + ... N2(x2),
//                         x2 = x1 + dropout(Cross(Nc(x1), memory) + bc)
// The addition that makes x1 and the norm behind it are one pass over memory, each way,
// and so for x2. The one that makes y is done by the MLP's product, where nothing is
// dropped and no tensor rank has a part of it; and backward by the pass that writes d_y,
// where that is a layer behind this one (leave_branch_gradient()).
// Saves what its parts save, x1 and x2; with selective recomputation the norms' outputs
// are made again. backward_input goes from d_y to d_x and holds what
// backward_weight needs; the two may lie apart in the schedule. Of biases and norms it
// holds sums over blocks of rows. x, y and their gradients are local rows.
#ifndef TRIREME_NN_TRANSFORMER_LAYER_HPP_
#define TRIREME_NN_TRANSFORMER_LAYER_HPP_

#include <optional>

#include "base/types.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/dropout.hpp"
#include "nn/attention.hpp"
#include "nn/cross_attention.hpp"
#include "nn/dropout.hpp"
#include "nn/layer_form.hpp"
#include "nn/mlp.hpp"
#include "nn/norm.hpp"
#include "nn/weight_gradients.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

template <class T>
class TransformerLayer {
 public:
  struct Saved {
    typename Norm<T>::Saved input_norm, cross_norm, mlp_norm;
    typename Attention<T>::Saved attention;
    typename CrossAttention<T>::Saved cross;
    typename Mlp<T>::Saved mlp;
  };
  struct Held {
    typename Attention<T>::Held attention;
    typename CrossAttention<T>::Held cross;
    typename Mlp<T>::Held mlp;
    // Sums over blocks of rows, of the norms' parameters.
    typename Norm<T>::Partials input_norm_sums, cross_norm_sums, mlp_norm_sums;
    // Gradients of the outputs of attention and MLP, with sums for their biases.
    BranchGradient<T> attention_branch, cross_branch, mlp_branch;
    bool has_mlp_branch = false;  // made with d_y
    // What selective recomputation makes the norms' outputs again from.
    typename Norm<T>::Values input_norm, cross_norm, mlp_norm;
  };

  // `relative_bias`: what self-attention adds to its scores.
  TransformerLayer(const Builder<T>& builder, const LayerForm& form,
                   std::optional<RelativeBias<T>> relative_bias = {});

  // x must live until backward_weight, d_y until the weight gradients are taken where
  // they come now; y may not be x. `memory`: what cross attention reads, which lives as
  // x.
  void forward(const Context& context, View2<const T> x, View2<T> y, Saved& saved,
               View2<const T> memory = {}) const;
  // With WeightPass::now the weight gradients are taken, too, beside the messages that
  // complete those of the inputs. `before`: what is made with d_x for the layer whose
  // output x is.
  void backward_input(const Context& context, View2<const T> d_y, const Saved& saved,
                      View2<T> d_x, Held& held,
                      WeightPass weight_pass = WeightPass::later,
                      const BranchGradient<T>& before = {},
                      const MemoryGradient<T>& d_memory = {}) const;
  // What whoever writes the next d_y is to make with it, in `memory`, which must live
  // until the weight gradients are taken. Nothing where this layer needs a copy of d_y,
  // and makes it itself.
  BranchGradient<T> leave_branch_gradient(const Context& context, Held& held,
                                          WeightPass weight_pass, Arena& memory) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;

  // What texts are made from comes to the cache, where there is cross attention.
  void begin_text(const Context& context, View2<const T> memory,
                  const KvCache<T>& cache) const;
  // The forward pass of generation, which saves nothing for a backward pass. A step on a
  // GPU is, where it is no part of a launch of several layers, five launches
  // (kernels/decode_linear.hpp), and seven with a tensor group.
  void forward_cached(const Context& context, View2<const T> x, View2<T> y,
                      KvCache<T>& cache) const;
  // What its step takes where it is one of several layers of a launch; nothing of a layer
  // that computes something else.
  std::optional<kernels::DecodeLayer<T>> decode_layer(const KvCache<T>& cache) const;

  index_t kv_columns() const { return attention_.kv_columns(); }
  index_t source_columns() const { return cross_ ? cross_->kv_columns() : 0; }

 private:
  // Memory for sums of biases' gradients, until the weight gradients are added.
  struct BiasSums {
    View2<Accumulator<T>> qkv;
    typename CrossAttention<T>::BiasSums cross;
  };
  // Where the gradients of weights go that are taken beside those of inputs.
  struct WeightSums {
    WeightPass weight_pass;
    const BiasSums& biases;
    PartialGradients<T>& gradients;
  };

  void decode(const Context& context, View2<const T> x, View2<T> y,
              const KvCache<T>& cache) const;
  // The norm's output as the forward pass had it: kept, or made again in context.scratch.
  View2<const T> normed(const Context& context, const typename Norm<T>::Values& norm,
                        const typename Norm<T>::Saved& saved, View2<const T> kept) const;
  // The MLP's branch with memory for it; a copy of d_y where nothing is dropped, if the
  // weight pass wants one.
  BranchGradient<T> mlp_branch(const Context& context, WeightPass weight_pass,
                               Arena& memory) const;
  void make_mlp_branch(const Context& context, View2<const T> d_y, Held& held,
                       WeightPass weight_pass) const;
  // What the pass makes that writes the gradient of a sum which is normed: the gradient
  // of attention's output, in `d_output`, with sums for its bias. The sum's own gradient
  // goes to `d_sum`, which is the same memory where nothing is dropped.
  BranchGradient<T> attention_branch(const Context& context, random::Site site,
                                     bool has_bias, const View2<T>& d_output) const;
  bool keeps_copy(const Context& context, WeightPass weight_pass) const;
  void cross_input(const Context& context, const Saved& saved, View2<T> d_x2,
                   const MemoryGradient<T>& d_memory, View2<T> d_normed, View2<T> d_x1,
                   Held& held, const WeightSums& sums) const;
  BiasSums take_bias_sums(const Context& context) const;
  void attention_weight(const Context& context, const Saved& saved, const Held& held,
                        const BiasSums& sums, PartialGradients<T>& gradients) const;
  void cross_weight(const Context& context, const Saved& saved, const Held& held,
                    const BiasSums& sums, PartialGradients<T>& gradients) const;
  void mlp_weight(const Context& context, const Saved& saved, const Held& held,
                  PartialGradients<T>& gradients) const;
  kernels::DropoutDesc dropout(const Context& context, random::Site site) const {
    return dropout_of(context, dropout_, layer_, site);
  }

  index_t hidden_;
  double dropout_;
  std::uint16_t layer_;
  bool has_decode_;       // whether a GPU's launches for a step of generation are for it
  bool may_join_others_;  // and whether the one for several layers is
  Norm<T> input_norm_;
  Attention<T> attention_;
  std::optional<Norm<T>> cross_norm_;
  std::optional<CrossAttention<T>> cross_;
  Norm<T> mlp_norm_;
  Mlp<T> mlp_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_TRANSFORMER_LAYER_HPP_

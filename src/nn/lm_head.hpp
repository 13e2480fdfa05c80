// nn/lm_head.hpp — final norm, logits by the tied word embedding, and the loss.
//
//   logits = LN(x) E^T;   loss = -log softmax(logits)[label]
// The vocabulary is split over the tensor group; logits are never gathered. Saves the
// normed x and the logits, which the backward pass turns into their gradient in place.
#ifndef TRIREME_NN_LM_HEAD_HPP_
#define TRIREME_NN_LM_HEAD_HPP_

#include <utility>

#include "base/exec.hpp"
#include "kernels/cross_entropy.hpp"
#include "nn/embedding.hpp"
#include "nn/layer_norm.hpp"
#include "nn/mappings.hpp"
#include "parallel/cross_entropy.hpp"
#include "tensor/param_buffer.hpp"

namespace trireme::nn {

template <class T>
class LmHead {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved norm;
    View2<T> normed;  // (local rows, h)
    View2<T> logits;  // (rows, v_tp); their gradient after backward_input
    parallel::CrossEntropySaved<T> cross_entropy;
    View1<Accumulator<T>> loss;  // (rows)
  };
  struct Held {
    View2<T> d_normed;  // (local rows, h)
  };

  // `word`: the embedding that is tied to this head.
  LmHead(const Builder<T>& builder, index_t hidden, const VocabParallelEmbedding<T>& word,
         kernels::ObjectiveScale objective = {});

  // totals[0] += sum of mask * loss, totals[1] += sum of mask.
  void forward(const Context& context, View2<const T> x, View1<const std::int32_t> labels,
               View1<const float> mask, View1<double> totals, Saved& saved) const;
  // Gradient of sum(mask * loss) * objective.in(step); with WeightPass::now the weight
  // gradients, too.
  void backward_input(const Context& context, View1<const std::int32_t> labels,
                      View1<const float> mask, const Saved& saved, View2<T> d_x,
                      Held& held, WeightPass weight_pass = WeightPass::later) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;

  // Logits only: x (n, h) of any number of rows, all of them here, logits (n, v_tp).
  void logits(const Context& context, View2<const T> x, View2<T> logits) const;
  index_t vocabulary_tp() const { return word_weight_.local_shape()[0]; }
  // Columns of real words alone; rows stay as far apart as they are.
  template <class U>
  View2<U> without_padding(const View2<U>& logits) const {
    return Kokkos::subview(logits, Kokkos::ALL,
                           std::pair<index_t, index_t>(0, range_.valid_columns));
  }

 private:
  void input_gradient(const Exec& exec, View2<const T> d_logits, View2<T> d_x) const;
  GatheredRows<T> start_normed(const Context& context, const Saved& saved) const;
  void word_gradient(const Context& context, const Saved& saved,
                     GatheredRows<T> normed) const;

  index_t hidden_;
  LayerNorm<T> norm_;
  ParamRef<T> word_weight_;  // (v_tp, h)
  kernels::VocabRange range_;
  kernels::ObjectiveScale objective_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LM_HEAD_HPP_

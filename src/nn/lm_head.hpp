// nn/lm_head.hpp — final norm, logits by the tied word embedding, and the loss.
//
//   logits = LN(x) E^T, and what WordLoss makes of them; in training all gradients but
//   the norm's are taken in the forward pass.
// Saves x, its statistics and d_LN(x); after a forward pass that takes no gradients LN(x)
// instead.
#ifndef TRIREME_NN_LM_HEAD_HPP_
#define TRIREME_NN_LM_HEAD_HPP_

#include "base/exec.hpp"
#include "kernels/step_state.hpp"
#include "nn/embedding.hpp"
#include "nn/layer_norm.hpp"
#include "nn/word_loss.hpp"

namespace trireme::nn {

template <class T>
class LmHead {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved norm;
    typename WordLoss<T>::Saved words;  // whose x is LN(x)
  };

  // `word`: the embedding that is tied to this head. `most_rows`: as WordLossOptions'.
  LmHead(const Builder<T>& builder, index_t hidden, const VocabParallelEmbedding<T>& word,
         kernels::ObjectiveScale objective = {}, index_t most_rows = 0);

  // As WordLoss::forward().
  void forward(const Context& context, View2<const T> x, View1<const std::int32_t> labels,
               View1<const float> mask, View1<double> totals, Saved& saved) const;
  // What is left: the norm's input gradient, and with WeightPass::now its weights', too.
  void backward_input(const Context& context, const Saved& saved, View2<T> d_x,
                      WeightPass weight_pass = WeightPass::later) const;
  void backward_weight(const Context& context, const Saved& saved) const;

  // Logits only: x (n, h) of any number of rows, all of them here, logits (n, v_tp).
  void logits(const Context& context, View2<const T> x, View2<T> logits) const;
  // As WordLoss::logits_again().
  View2<T> logits_again(const Context& context, const Saved& saved,
                        const View2<T>& memory) const {
    return words_.logits_again(context, saved.words, memory);
  }
  index_t vocabulary_tp() const { return words_.vocabulary_tp(); }

 private:
  index_t hidden_;
  LayerNorm<T> norm_;
  WordLoss<T> words_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LM_HEAD_HPP_

// nn/lm_head.hpp — final norm, logits by a table of words, and the loss.
//
//   logits = n E^T, n = c dropout(N(x)), and what WordLoss makes of them; in training all
//   gradients but the norm's are taken in the forward pass.
// GPT drops nothing here, and c = 1. T5 does, and where the table is tied to the
// embedding c = 1 / sqrt(h) (Raffel et al. 2020; Mesh TensorFlow).
// Saves x, its statistics and d_n; after a forward pass that takes no gradients n
// instead.
#ifndef TRIREME_NN_LM_HEAD_HPP_
#define TRIREME_NN_LM_HEAD_HPP_

#include "base/exec.hpp"
#include "kernels/dropout.hpp"
#include "kernels/step_state.hpp"
#include "nn/dropout.hpp"
#include "nn/embedding.hpp"
#include "nn/norm.hpp"
#include "nn/word_loss.hpp"

namespace trireme::nn {

struct LmHeadForm {
  index_t hidden = 0;
  NormForm norm = {};
  double dropout = 0.0;
  double factor = 1.0;      // c
  std::uint16_t layer = 0;  // coordinate of dropout, which has the site of an embedding
  index_t most_rows = 0;    // as WordLossOptions'
};

template <class T>
class LmHead {
 public:
  struct Saved {
    typename Norm<T>::Saved norm;
    typename WordLoss<T>::Saved words;  // whose x is n
  };

  // `word`: the table, registered already.
  LmHead(const Builder<T>& builder, const LmHeadForm& form,
         const VocabParallelEmbedding<T>& word, kernels::ObjectiveScale objective = {});

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
  View2<const T> logit_weights() const { return words_.weights(); }  // (v_tp, h)

 private:
  kernels::DropoutDesc dropout(const Context& context) const;

  LmHeadForm form_;
  Norm<T> norm_;
  WordLoss<T> words_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_LM_HEAD_HPP_

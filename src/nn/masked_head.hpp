// nn/masked_head.hpp — which words stand at a few positions of a text: BERT's
// masked-language-model head, with the loss.
//
//   g = x at the positions;  a = f(Wd g + bd);  WordLoss of N(a), with a bias
// The positions are a stream of their own, which is not split: every rank of a tensor
// group has all of them and computes the transform alike; the products with the
// vocabulary are split. With sequence parallelism ranks gather the rows that they have,
// and the sum over ranks, of which one has each row, is exact.
// Saves g, the pre-activation, a, the norm's statistics and what WordLoss saves.
#ifndef TRIREME_NN_MASKED_HEAD_HPP_
#define TRIREME_NN_MASKED_HEAD_HPP_

#include <string>

#include "base/types.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/activation.hpp"
#include "kernels/gather_rows.hpp"
#include "kernels/step_state.hpp"
#include "nn/context.hpp"
#include "nn/embedding.hpp"
#include "nn/linear.hpp"
#include "nn/norm.hpp"
#include "nn/word_loss.hpp"
#include "tensor/arena.hpp"

namespace trireme::nn {

struct MaskedHeadForm {
  index_t hidden = 0;
  kernels::Activation activation = kernels::Activation::gelu_erf;
  NormForm norm = {};
  double init_std = 0.02;
  int text_stream = 0;    // whose positions they are
  index_t most_rows = 0;  // as WordLossOptions'
};

template <class T>
class MaskedHead {
 public:
  struct Saved {
    View2<T> gathered, pre_activation, activation;  // (rows, h)
    typename Norm<T>::Saved norm;
    typename WordLoss<T>::Saved words;  // whose x is the norm's output
  };
  struct Held {
    View2<T> d_pre_activation;         // (rows, h)
    View2<Accumulator<T>> dense_sums;  // (blocks, h)
    kernels::NormPartials<Accumulator<T>> norm_sums;
  };
  // Fields of the context's stream: positions, -1 for none; labels and weights.
  struct Fields {
    View1<const std::int32_t> positions, labels;
    View1<const float> mask;
  };

  // `word`: the embedding that is tied to this head.
  MaskedHead(const Builder<T>& builder, const std::string& name,
             const MaskedHeadForm& form, const VocabParallelEmbedding<T>& word,
             kernels::ObjectiveScale objective = {});

  // x: (local rows of the text, h). Totals and gradients as WordLoss::forward().
  void forward(const Context& context, View2<const T> x, const Fields& fields,
               View1<double> totals, Saved& saved) const;
  // Logits of all words at the positions, as the model's output, and no loss.
  void give_logits(const Context& context, View2<const T> x,
                   View1<const std::int32_t> positions, Saved& saved) const;
  // The gradient of x: added to d_x, or written.
  void backward_input(const Context& context, const Fields& fields, const Saved& saved,
                      kernels::Accumulate accumulate, View2<T> d_x, Held& held) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;
  // As WordLoss::logits_again().
  View2<T> logits_again(const Context& context, const Saved& saved,
                        const View2<T>& memory) const {
    return words_.logits_again(context, saved.words, memory);
  }
  index_t vocabulary_tp() const { return words_.vocabulary_tp(); }

 private:
  kernels::PickedPositions picked(const Context& context,
                                  View1<const std::int32_t> positions) const {
    return {positions, context.samples(),
            context.on_stream(form_.text_stream).sequence_begin()};
  }
  // What the words are told from, (rows, h) in `arena`.
  View2<const T> transform(const Context& context, View2<const T> x,
                           View1<const std::int32_t> positions, Arena& arena,
                           Saved& saved) const;

  MaskedHeadForm form_;
  ReplicatedLinear<T> dense_;
  Norm<T> norm_;
  WordLoss<T> words_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_MASKED_HEAD_HPP_

// nn/pair_head.hpp — which class a sample is of, from its first position: BERT's pooler
// and classifier, with the loss.
//
//   p = tanh(Wp x[0] + bp);   logits = Wc p + bc;   loss = -log softmax(logits)[label]
// Every rank of a tensor group computes all of it, for the few rows that there are. With
// sequence parallelism the rank that has position 0 hands it to the others. Saves x[0],
// the pre-activation, p, and logits, which the backward pass turns into their gradient.
#ifndef TRIREME_NN_PAIR_HEAD_HPP_
#define TRIREME_NN_PAIR_HEAD_HPP_

#include <string>

#include "base/types.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/step_state.hpp"
#include "nn/context.hpp"
#include "nn/linear.hpp"
#include "nn/weight_gradients.hpp"

namespace trireme::nn {

struct PairHeadForm {
  index_t hidden = 0, classes = 2;
  double init_std = 0.02;
};

template <class T>
class PairHead {
 public:
  struct Saved {
    View2<T> first;              // (b, h): x[0], on every rank
    View2<T> pre_activation, p;  // (b, h)
    View2<T> logits;             // (b, classes)
    View1<Accumulator<T>> row_max, loss;
    View2<Accumulator<T>> sums;
  };
  struct Held {
    View2<T> d_logits, d_pre_activation;
    View2<Accumulator<T>> pooler_sums, classifier_sums;
  };

  // Of each sample, (b).
  struct Fields {
    View1<const std::int32_t> labels;
    View1<const float> mask;
  };

  PairHead(const Builder<T>& builder, const std::string& name, const PairHeadForm& form,
           kernels::ObjectiveScale objective = {});

  // x (local rows, h). totals[0] += sum of mask * loss, totals[1] += sum of mask.
  void forward(const Context& context, View2<const T> x, const Fields& fields,
               View1<double> totals, Saved& saved) const;
  // The gradient of x[0] is added to d_x, or written, with zeros for all others.
  void backward_input(const Context& context, const Fields& fields, const Saved& saved,
                      kernels::Accumulate accumulate, View2<T> d_x, Held& held) const;
  void backward_weight(const Context& context, const Saved& saved,
                       const Held& held) const;

 private:
  kernels::VocabRange range() const { return {0, form_.classes}; }

  PairHeadForm form_;
  kernels::ObjectiveScale objective_;
  ReplicatedLinear<T> pooler_, classifier_;
};

}  // namespace trireme::nn

#endif  // TRIREME_NN_PAIR_HEAD_HPP_

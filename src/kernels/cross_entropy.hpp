// kernels/cross_entropy.hpp — softmax cross-entropy over a shard of the vocabulary.
//
// The steps between which a tensor group reduces (Shoeybi et al. 2019, section 3):
//   row_max -> all-reduce max -> row_sums -> all-reduce sum -> backward (in place);
// and of all rows of a micro-batch together cross_entropy_loss. For a group of one
// cross_entropy_in_place does all but the last in one pass over memory.
// Logits of padding rows (local column >= valid_columns) take no part: they count as
// minus infinity and their gradient is zero. All sums in Accumulator<T>.
#ifndef TRIREME_KERNELS_CROSS_ENTROPY_HPP_
#define TRIREME_KERNELS_CROSS_ENTROPY_HPP_

#include "base/exec.hpp"
#include "kernels/step_state.hpp"

namespace trireme::kernels {

// The part of the vocabulary a rank holds: columns [begin, begin + valid_columns) are the
// first columns of its logits.
struct VocabRange {
  index_t begin = 0;
  index_t valid_columns = 0;
};

// max over valid columns; (rows).
template <class T>
void cross_entropy_row_max(const Exec& exec, VocabRange range, View2<const T> logits,
                           View1<Accumulator<T>> row_max);

// sums[2 r] = sum of exp(logit - row_max), sums[2 r + 1] = logit of the label where it
// lies in this shard, else 0; (rows, 2).
template <class T>
void cross_entropy_row_sums(const Exec& exec, VocabRange range, View2<const T> logits,
                            View1<const std::int32_t> labels,
                            View1<const Accumulator<T>> row_max,
                            View2<Accumulator<T>> sums);

// Maximum and sums in one pass over the logits, for a group of one.
template <class T>
void cross_entropy_row_max_and_sums(const Exec& exec, VocabRange range,
                                    View2<const T> logits,
                                    View1<const std::int32_t> labels,
                                    View1<Accumulator<T>> row_max,
                                    View2<Accumulator<T>> sums);

// loss[r] = (row_max - label logit) + log(sum); and the two totals, added to what is
// there: totals[0] += sum of mask * loss, totals[1] += sum of mask. Fixed summation
// order. Totals are double whatever T is. A row with mask 0 adds nothing, even where its
// loss is not finite.
template <class T>
void cross_entropy_loss(const Exec& exec, View1<const Accumulator<T>> row_max,
                        View2<const Accumulator<T>> sums, View1<const float> mask,
                        View1<Accumulator<T>> loss, View1<double> totals);

// Maximum, sums and gradient, for a group of one: row_max and sums as above, and each row
// of logits becomes its d_logits while it is in the cache: read from memory once, and
// written once.
template <class T>
void cross_entropy_in_place(const Exec& exec, VocabRange range, StepStateView step,
                            ObjectiveScale objective, View1<const std::int32_t> labels,
                            View1<const float> mask, View2<T> logits,
                            View1<Accumulator<T>> row_max, View2<Accumulator<T>> sums);

// Works in place: logits become d_logits = scale * mask * (softmax - one_hot(label)),
// with scale = objective.in(step).
template <class T>
void cross_entropy_backward(const Exec& exec, VocabRange range, StepStateView step,
                            ObjectiveScale objective, View1<const std::int32_t> labels,
                            View1<const float> mask, View1<const Accumulator<T>> row_max,
                            View2<const Accumulator<T>> sums, View2<T> logits);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_CROSS_ENTROPY_HPP_

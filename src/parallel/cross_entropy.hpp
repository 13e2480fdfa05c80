// parallel/cross_entropy.hpp — softmax cross-entropy with the vocabulary split over the
// tensor group: two all-reduces of (rows) and (rows, 2) numbers in place of a gather of
// the logits (Shoeybi et al. 2019, section 3).
//
// Both functions take some rows of a micro-batch at a time, so that its logits need never
// be there all at once. What they leave of every row, the same on every rank of the
// group, is what kernels::cross_entropy_loss makes losses and totals of, for all rows of
// the micro-batch together.
#ifndef TRIREME_PARALLEL_CROSS_ENTROPY_HPP_
#define TRIREME_PARALLEL_CROSS_ENTROPY_HPP_

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/step_state.hpp"

namespace trireme::parallel {

template <class T>
struct SoftmaxStatistics {
  View1<Accumulator<T>> row_max;  // (rows)
  View2<Accumulator<T>> sums;     // (rows, 2): sum of exponentials, logit of the label
};

// Fills `statistics`.
template <class T>
void vocab_parallel_softmax_statistics(const Exec& exec, comm::Group& tensor,
                                       kernels::VocabRange range,
                                       View2<const T> logits,  // (rows, v_tp)
                                       View1<const std::int32_t> labels,
                                       const SoftmaxStatistics<T>& statistics);

// The same, and logits become d_logits (kernels::cross_entropy_backward).
template <class T>
void vocab_parallel_cross_entropy_in_place(const Exec& exec, comm::Group& tensor,
                                           kernels::VocabRange range,
                                           kernels::StepStateView step,
                                           kernels::ObjectiveScale objective,
                                           View2<T> logits,  // (rows, v_tp)
                                           View1<const std::int32_t> labels,
                                           View1<const float> mask,
                                           const SoftmaxStatistics<T>& statistics);

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_CROSS_ENTROPY_HPP_

// parallel/cross_entropy.hpp — softmax cross-entropy with the vocabulary split over the
// tensor group: two all-reduces of (rows) and (rows, 2) numbers in place of a gather of
// the logits (Shoeybi et al. 2019, section 3).
#ifndef TRIREME_PARALLEL_CROSS_ENTROPY_HPP_
#define TRIREME_PARALLEL_CROSS_ENTROPY_HPP_

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "kernels/cross_entropy.hpp"

namespace trireme::parallel {

// What the backward pass needs besides the logits.
template <class T>
struct CrossEntropySaved {
  View1<Accumulator<T>> row_max;  // (rows)
  View2<Accumulator<T>> sums;     // (rows, 2): sum of exponentials, logit of the label
};

// loss (rows) of each position, in `totals` += (sum of mask * loss, sum of mask).
// Fills `saved`. Every rank of the group gets the same numbers.
template <class T>
void vocab_parallel_cross_entropy_forward(
    const Exec& exec, comm::Group& tensor, kernels::VocabRange range,
    View2<const T> logits,  // (rows, v_tp)
    View1<const std::int32_t> labels, View1<const float> mask,
    const CrossEntropySaved<T>& saved, View1<Accumulator<T>> loss, View1<double> totals);

}  // namespace trireme::parallel

#endif  // TRIREME_PARALLEL_CROSS_ENTROPY_HPP_

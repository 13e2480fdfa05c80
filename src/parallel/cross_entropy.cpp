// parallel/cross_entropy.cpp — see cross_entropy.hpp.
#include "parallel/cross_entropy.hpp"

#include "base/exec.hpp"

namespace trireme::parallel {

template <class T>
void vocab_parallel_softmax_statistics(const Exec& exec, comm::Group& tensor,
                                       kernels::VocabRange range, View2<const T> logits,
                                       View1<const std::int32_t> labels,
                                       const SoftmaxStatistics<T>& statistics) {
  using Acc = Accumulator<T>;
  const auto& [row_max, sums] = statistics;
  if (tensor.size() == 1) {
    kernels::cross_entropy_row_max_and_sums<T>(exec, range, logits, labels, row_max,
                                               sums);
    return;
  }
  kernels::cross_entropy_row_max<T>(exec, range, logits, row_max);
  tensor.all_reduce(exec, comm::span_of(row_max), comm::Op::max, "loss: maximum");
  kernels::cross_entropy_row_sums<T>(exec, range, logits, labels,
                                     View1<const Acc>(row_max), sums);
  tensor.all_reduce(exec, comm::span_of(sums), comm::Op::sum, "loss: sums");
}

template <class T>
void vocab_parallel_cross_entropy_in_place(
    const Exec& exec, comm::Group& tensor, kernels::VocabRange range,
    kernels::StepStateView step, kernels::ObjectiveScale objective, View2<T> logits,
    View1<const std::int32_t> labels, View1<const float> mask,
    const SoftmaxStatistics<T>& statistics) {
  using Acc = Accumulator<T>;
  const auto& [row_max, sums] = statistics;
  if (tensor.size() == 1) {
    kernels::cross_entropy_in_place<T>(exec, range, step, objective, labels, mask, logits,
                                       row_max, sums);
    return;
  }
  vocab_parallel_softmax_statistics<T>(exec, tensor, range, logits, labels, statistics);
  kernels::cross_entropy_backward<T>(exec, range, step, objective, labels, mask,
                                     View1<const Acc>(row_max), View2<const Acc>(sums),
                                     logits);
}

#define TRIREME_INSTANTIATE(T)                                \
  template decltype(vocab_parallel_softmax_statistics<T>)     \
      vocab_parallel_softmax_statistics<T>;                   \
  template decltype(vocab_parallel_cross_entropy_in_place<T>) \
      vocab_parallel_cross_entropy_in_place<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel

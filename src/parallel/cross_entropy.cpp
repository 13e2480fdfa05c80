// parallel/cross_entropy.cpp — see cross_entropy.hpp.
#include "parallel/cross_entropy.hpp"

#include "base/exec.hpp"

namespace trireme::parallel {

template <class T>
void vocab_parallel_cross_entropy_forward(
    const Exec& exec, comm::Group& tensor, kernels::VocabRange range,
    View2<const T> logits, View1<const std::int32_t> labels, View1<const float> mask,
    const CrossEntropySaved<T>& saved, View1<Accumulator<T>> loss, View1<double> totals) {
  using Acc = Accumulator<T>;
  if (tensor.size() == 1) {
    kernels::cross_entropy_row_max_and_sums<T>(exec, range, logits, labels, saved.row_max,
                                               saved.sums);
  } else {
    kernels::cross_entropy_row_max<T>(exec, range, logits, saved.row_max);
    tensor.all_reduce(exec, comm::span_of(saved.row_max), comm::Op::max, "loss: maximum");
    kernels::cross_entropy_row_sums<T>(exec, range, logits, labels,
                                       View1<const Acc>(saved.row_max), saved.sums);
    tensor.all_reduce(exec, comm::span_of(saved.sums), comm::Op::sum, "loss: sums");
  }
  kernels::cross_entropy_loss<T>(exec, View1<const Acc>(saved.row_max),
                                 View2<const Acc>(saved.sums), mask, loss, totals);
}

#define TRIREME_INSTANTIATE(T)                               \
  template decltype(vocab_parallel_cross_entropy_forward<T>) \
      vocab_parallel_cross_entropy_forward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::parallel

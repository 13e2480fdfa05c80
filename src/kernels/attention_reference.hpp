// kernels/attention_reference.hpp — attention as its definition says, one row at a time
// and everything in double: the oracle of the tests, not meant to be fast.
#ifndef TRIREME_KERNELS_ATTENTION_REFERENCE_HPP_
#define TRIREME_KERNELS_ATTENTION_REFERENCE_HPP_

#include "base/exec.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels {

// Arguments as attention_forward().
template <class T>
void attention_forward_reference(const Exec& exec, const AttentionDesc& desc,
                                 StepStateView step, HeadsView<const T> q,
                                 HeadsView<const T> k, HeadsView<const T> v,
                                 HeadsView<T> o, View1<Accumulator<T>> lse);

// Arguments as attention_backward(), without scratch.
template <class T>
void attention_backward_reference(const Exec& exec, const AttentionDesc& desc,
                                  StepStateView step, HeadsView<const T> q,
                                  HeadsView<const T> k, HeadsView<const T> v,
                                  HeadsView<const T> o, View1<const Accumulator<T>> lse,
                                  HeadsView<const T> d_o, HeadsView<T> d_q,
                                  HeadsView<T> d_k, HeadsView<T> d_v);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_ATTENTION_REFERENCE_HPP_

// kernels/impl/attention_host.hpp — the ways of impl/attention_fast.hpp that a host has:
// vectors (kernels/attention_vectors.cpp) and matrices (kernels/attention_amx.cpp).
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_HOST_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_HOST_HPP_

#include "base/exec.hpp"
#include "kernels/attention.hpp"
#include "kernels/impl/attention_fast.hpp"

namespace trireme::kernels::impl {

// Whether the backward pass takes key heads of samples whole, `items` of them in one
// launch, or keys and queries apart, in seven products in place of five: worth it where
// less than 5/7 of the threads would be busy. The bits are the same. A plan does not
// depend on the threads. Tests choose.
enum class BackwardLaunches { fitting, one, two };
void set_backward_launches(const Exec& exec, BackwardLaunches launches);
bool backward_in_one(const Exec& exec, index_t items);

// T: float, bf16 or fp16 by vectors; bf16 by matrices.
template <class T>
void forward_by_vectors(const Exec& exec, const Kernel& kernel,
                        const ForwardArguments<T>& arguments);
template <class T>
void backward_by_vectors(const Exec& exec, const BackwardKernels& kernels,
                         const BackwardArguments<T>& arguments);
// Asks the operating system for the matrix registers once; false where there are none.
bool has_bf16_matrices();
void forward_by_matrices(const Exec& exec, const Kernel& kernel,
                         const ForwardArguments<bf16>& arguments);
void backward_by_matrices(const Exec& exec, const BackwardKernels& kernels,
                          const BackwardArguments<bf16>& arguments);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_HOST_HPP_

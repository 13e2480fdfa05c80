// kernels/impl/attention_host.hpp — attention on a host: which code computes the tiles,
// and the entries to each.
//
//   reference  kernels/attention.cpp, plain tiles: any element type and head size
//   vectors    kernels/attention_vectors.cpp: tiles of float in the widest vectors that
//              the build may use; bf16 and fp16 are widened
//   matrices   kernels/attention_amx.cpp: tiles of bf16 in Intel's matrix registers (AMX)
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_HOST_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_HOST_HPP_

#include <string_view>

#include "base/exec.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels::impl {

enum class AttentionWay { reference, vectors, matrices };
constexpr std::string_view name_of(AttentionWay way) {
  switch (way) {
    case AttentionWay::vectors:
      return "vectors";
    case AttentionWay::matrices:
      return "matrices";
    default:
      return "reference";
  }
}

// Whether this process can compute `type` that way.
bool has_attention_way(DType type, AttentionWay way);

// The way of `exec` and its copies from now on, for every type that has it; others are
// computed as if nothing was set: bf16 by matrices where its products are native
// (kernels/narrow_gemm.hpp) and the CPU has them, otherwise by vectors.
void set_attention_way(const Exec& exec, AttentionWay way);
AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc);

// Whether the backward pass takes key heads of samples whole, `items` of them in one
// launch, or keys and queries apart, in seven products in place of five: worth it where
// less than 5/7 of the threads would be busy. The bits are the same. A plan does not
// depend on the threads. Tests choose.
enum class BackwardLaunches { fitting, one, two };
void set_backward_launches(const Exec& exec, BackwardLaunches launches);
bool backward_in_one(const Exec& exec, index_t items);

template <class T>
struct ForwardArguments {
  AttentionDesc desc;
  StepStateView step;
  HeadsView<const T> q, k, v;
  HeadsView<T> o;
  float* lse;  // (b, a, s_q)
};

template <class T>
struct BackwardArguments {
  AttentionDesc desc;
  StepStateView step;
  HeadsView<const T> q, k, v, d_o;
  const float *lse, *delta;  // (b, a, s_q)
  float* d_q_sum;            // tiled_query_elements()
  HeadsView<T> d_q, d_k, d_v;
};

// Of d_q while it is summed: whole tiles of queries, padded head sizes.
index_t tiled_query_elements(const AttentionDesc& desc);

struct BackwardKernels {
  Kernel whole, keys, queries;
};

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

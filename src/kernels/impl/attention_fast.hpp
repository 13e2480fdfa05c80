// kernels/impl/attention_fast.hpp — what computes attention faster than the plain tiles
// of kernels/attention.cpp, where there is something: attention_host.cpp or
// attention_cuda.cpp, chosen by the build.
//
//   reference     kernels/attention.cpp: any element type and head size
//   vectors       host: tiles of float in the widest vectors that the build may use; bf16
//                 and fp16 are widened
//   matrices      host: tiles of bf16 in Intel's matrix registers (AMX)
//   tensor_cores  GPU: tiles of bf16 and fp16 in fragments (kernels/cuda/attention.hpp)
//   cudnn         GPU: NVIDIA's library, where the descriptor asks for it
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_FAST_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_FAST_HPP_

#include <optional>
#include <string_view>

#include "base/exec.hpp"
#include "kernels/attention.hpp"
#include "kernels/impl/attention_bias.hpp"

namespace trireme::kernels::impl {

enum class AttentionWay { reference, vectors, matrices, tensor_cores, cudnn };
constexpr std::string_view name_of(AttentionWay way) {
  switch (way) {
    case AttentionWay::vectors:
      return "vectors";
    case AttentionWay::matrices:
      return "matrices";
    case AttentionWay::tensor_cores:
      return "tensor cores";
    case AttentionWay::cudnn:
      return "cuDNN";
    default:
      return "reference";
  }
}

// Whether this process can compute `type` that way.
bool has_attention_way(DType type, AttentionWay way);

// The way of `exec` and its copies from now on, for every type that has it and every
// shape that there is code for; others are computed as if nothing was set, by the
// fastest.
void set_attention_way(const Exec& exec, AttentionWay way);
std::optional<AttentionWay> chosen_attention_way(const Exec& exec);
AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc);

template <class T>
struct ForwardArguments {
  AttentionDesc desc;
  StepStateView step;
  HeadsView<const T> q, k, v;
  HeadsView<T> o;
  float* lse;                   // (b, a, s_q)
  const float* bias = nullptr;  // (a, s_q + s_k - 1), or null
};

template <class T>
struct BackwardArguments {
  AttentionDesc desc;
  StepStateView step;
  HeadsView<const T> q, k, v, o, d_o;
  const float* lse;  // (b, a, s_q)
  float* delta;      // (b, a, s_q): sums over d of d_o * o
  float* d_q_sum;    // fast_scratch_elements()
  HeadsView<T> d_q, d_k, d_v;
  const float* bias = nullptr;    // (a, s_q + s_k - 1), or null
  float* bias_windows = nullptr;  // impl/attention_bias.hpp, or null
  float* d_bias = nullptr;        // as the bias
};

// What the launches of a backward pass are called, and what they cost.
struct BackwardKernels {
  Kernel delta, whole, keys, queries;
};

// delta, by a launch of kernels/attention.cpp.
template <class T>
void attention_delta(const Exec& exec, const Kernel& kernel, const AttentionDesc& desc,
                     HeadsView<const T> o, HeadsView<const T> d_o,
                     View1<Accumulator<T>> delta);

// d_bias = the sums of all windows of all samples, by a launch of
// kernels/attention_bias.cpp. Nothing where there is no bias.
template <class Acc>
void sum_bias_windows(const Exec& exec, const AttentionDesc& desc, const BiasSums& sums,
                      const Acc* windows, Acc* d_bias);

// The element types that there is faster code for.
#define TRIREME_FOR_EACH_FAST_REAL(X) X(float) X(bf16) X(fp16)

// False where the reference is to do it.
template <class T>
bool forward_fast(const Exec& exec, const Kernel& kernel,
                  const ForwardArguments<T>& arguments);
template <class T>
bool backward_fast(const Exec& exec, const BackwardKernels& kernels,
                   const BackwardArguments<T>& arguments);
#define TRIREME_INSTANTIATE_FAST_ATTENTION(T)                                         \
  template bool forward_fast(const Exec&, const Kernel&, const ForwardArguments<T>&); \
  template bool backward_fast(const Exec&, const BackwardKernels&,                    \
                              const BackwardArguments<T>&);
// Of d_q while it is summed, and what else the backward pass keeps besides delta.
index_t fast_scratch_elements(DType type, const AttentionDesc& desc);

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_FAST_HPP_

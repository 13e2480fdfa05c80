// kernels/attention_cuda.cpp — attention of 16-bit elements on a GPU's tensor cores,
// where there is a kernel for the shape; see impl/attention_fast.hpp.
#include "base/error.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/attention_task.hpp"
#include "kernels/impl/cuda_queue.hpp"

namespace trireme::kernels::impl {

namespace {

bool takes_tensor_cores(const Exec& exec, DType type, const AttentionDesc& desc) {
  return attention_way(exec, type, desc) == AttentionWay::tensor_cores;
}

void require_launched(const char* message, const Kernel& kernel) {
  TRIREME_REQUIRE(message == nullptr, "{}: {}", kernel.label, message);
}

}  // namespace

bool has_attention_way(DType type, AttentionWay way) {
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  return way == AttentionWay::reference ||
         (way == AttentionWay::tensor_cores && is_narrow);
}

AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc) {
  const bool is_possible = has_attention_way(type, AttentionWay::tensor_cores) &&
                           has_tensor_core_kernel(desc) &&
                           cuda::has_room_for_attention(shape_of(desc));
  const auto chosen = chosen_attention_way(exec);
  return is_possible && chosen != AttentionWay::reference ? AttentionWay::tensor_cores
                                                          : AttentionWay::reference;
}

template <class T>
bool forward_fast(const Exec& exec, const Kernel& kernel, const ForwardArguments<T>& in) {
  if constexpr (sizeof(T) == 2) {
    if (!takes_tensor_cores(exec, dtype_of<T>, in.desc) ||
        !have_whole_quads(in.q, in.k, in.v, in.o)) {
      return false;
    }
    if (exec.only_counts(kernel)) return true;
    LibraryCall call(exec, kernel);
    require_launched(cuda::attention_forward(stream_of(exec), element_of<T>, task_of(in)),
                     kernel);
    call.finish();
    return true;
  }
  return false;
}

template <class T>
bool backward_fast(const Exec& exec, const BackwardKernels& kernels,
                   const BackwardArguments<T>& in) {
  if constexpr (sizeof(T) == 2) {
    if (!takes_tensor_cores(exec, dtype_of<T>, in.desc) ||
        !have_whole_quads(in.q, in.k, in.v, in.o, in.d_o, in.d_q, in.d_k, in.d_v)) {
      return false;
    }
    // Two kernels, of which a plan sees each.
    const bool only_counts = exec.only_counts(kernels.delta);
    if (exec.only_counts(kernels.whole) || only_counts) return true;
    TRIREME_REQUIRE(has_whole_quads(in.d_q_sum),
                    "attention: the backward pass's scratch begins at no multiple of 16 "
                    "bytes");
    const cuda::AttentionBackwardTask task = task_of(in);
    cudaStream_t const stream = stream_of(exec);
    LibraryCall first(exec, kernels.delta);
    require_launched(cuda::attention_delta(stream, element_of<T>, task), kernels.delta);
    first.finish();
    LibraryCall second(exec, kernels.whole);
    require_launched(cuda::attention_backward(stream, element_of<T>, task),
                     kernels.whole);
    second.finish();
    return true;
  }
  return false;
}

index_t fast_scratch_elements(DType type, const AttentionDesc& desc) {
  const bool may_be_taken =
      has_attention_way(type, AttentionWay::tensor_cores) && has_tensor_core_kernel(desc);
  return may_be_taken ? tensor_core_scratch_elements(shape_of(desc)) : 0;
}

TRIREME_FOR_EACH_FAST_REAL(TRIREME_INSTANTIATE_FAST_ATTENTION)

}  // namespace trireme::kernels::impl

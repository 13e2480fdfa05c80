// kernels/attention_cuda.cpp — attention of 16-bit elements on a GPU's tensor cores,
// where there is a kernel for the shape; see impl/attention_fast.hpp.
//
// cuDNN goes before that where the descriptor asks for it and it has the shape. A plan of
// it belongs to a queue, because the library's handle does; it is made when its shape
// first comes. The memory of its backward pass lies in the scratch that the caller has
// planned, since the library would take it at every call; the few bytes of its forward
// pass, which has no scratch, are kept with the plans.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cudnn_scratch.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/attention_task.hpp"
#include "kernels/impl/cuda_queue.hpp"
#include "kernels/impl/cudnn_attention.hpp"

namespace trireme::kernels::impl {

namespace {

// What a queue keeps of cuDNN: the library, and a plan for each pass of each shape.
class CudnnState final : public LibraryState {
 public:
  explicit CudnnState(const Exec& exec) : cudnn_(stream_of(exec)) {}

  const Cudnn& cudnn() const { return cudnn_; }
  const CudnnAttention& plan(const CudnnAttentionShape& shape) {
    auto& plan = plans_[shape];
    if (!plan) plan = std::make_unique<CudnnAttention>(cudnn_, shape);
    return *plan;
  }
  std::byte* forward_workspace() const { return forward_workspace_.data(); }

 private:
  Cudnn cudnn_;
  std::map<CudnnAttentionShape, std::unique_ptr<CudnnAttention>> plans_;
  DeviceArray<std::byte> forward_workspace_{"cuDNN's forward workspace",
                                            kCudnnForwardBytes};
};

CudnnState& cudnn_of(const Exec& exec) {
  return exec.library<CudnnState>([&] { return std::make_unique<CudnnState>(exec); });
}

template <class T>
HeadStrides strides_of(const HeadsView<T>& view) {
  return {.sequence = view.sequence_stride, .batch = view.batch_stride};
}

template <class T, class Arguments>
CudnnAttentionShape cudnn_shape(CudnnAttentionShape::Pass pass, const Arguments& in) {
  return {.pass = pass,
          .type = dtype_of<T>,
          .is_causal = in.desc.mask == MaskKind::causal,
          .is_deterministic = in.desc.library == AttentionLibrary::cudnn,
          .batch = in.desc.batch,
          .q_length = in.desc.q_length,
          .kv_length = in.desc.kv_length,
          .heads = in.desc.heads,
          .kv_heads = in.desc.kv_heads,
          .head_dim = in.desc.head_dim,
          .scale = in.desc.scale,
          .q = strides_of(in.q),
          .k = strides_of(in.k),
          .v = strides_of(in.v),
          .o = strides_of(in.o),
          .d_o = {},
          .d_q = {},
          .d_k = {},
          .d_v = {}};
}

void require_planned(const CudnnAttention& plan, const char* pass, std::size_t planned) {
  TRIREME_REQUIRE(plan.workspace_bytes() <= planned,
                  "cuDNN wants {} for attention's pass {}, and {} were planned: set "
                  "precision.attention: own",
                  format_plural(plan.workspace_bytes(), "byte"), pass, planned);
}

template <class T>
void forward_by_cudnn(const Exec& exec, const ForwardArguments<T>& in) {
  CudnnState& state = cudnn_of(exec);
  const CudnnAttention& plan =
      state.plan(cudnn_shape<T>(CudnnAttentionShape::Pass::forward, in));
  require_planned(plan, "forward", kCudnnForwardBytes);
  // Named, as nvcc 13.0 makes nonsense of a temporary with named fields.
  const CudnnAttentionOperands operands{
      .q = in.q.data, .k = in.k.data, .v = in.v.data, .o = in.o.data, .lse = in.lse};
  plan.run(state.cudnn(), operands, state.forward_workspace());
}

// The library wants its workspace aligned as it would allocate it.
constexpr std::size_t kCudnnAlignment = 256;

template <class T>
void backward_by_cudnn(const Exec& exec, const BackwardArguments<T>& in) {
  CudnnState& state = cudnn_of(exec);
  auto shape = cudnn_shape<T>(CudnnAttentionShape::Pass::backward, in);
  shape.d_o = strides_of(in.d_o);
  shape.d_q = strides_of(in.d_q);
  shape.d_k = strides_of(in.d_k);
  shape.d_v = strides_of(in.d_v);
  const CudnnAttention& plan = state.plan(shape);
  require_planned(plan, "backward", cudnn_scratch_bytes(in.desc, shape.is_deterministic));
  const auto begin = reinterpret_cast<std::uintptr_t>(in.d_q_sum);
  const auto aligned = (begin + kCudnnAlignment - 1) / kCudnnAlignment * kCudnnAlignment;
  const CudnnAttentionOperands operands{.q = in.q.data,
                                        .k = in.k.data,
                                        .v = in.v.data,
                                        .o = const_cast<T*>(in.o.data),
                                        .lse = const_cast<float*>(in.lse),
                                        .d_o = in.d_o.data,
                                        .d_q = in.d_q.data,
                                        .d_k = in.d_k.data,
                                        .d_v = in.d_v.data};
  plan.run(state.cudnn(), operands, reinterpret_cast<void*>(aligned));
}

void require_launched(const char* message, const Kernel& kernel) {
  TRIREME_REQUIRE(message == nullptr, "{}: {}", kernel.label, message);
}

}  // namespace

bool has_attention_way(DType type, AttentionWay way) {
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  return way == AttentionWay::reference ||
         (way == AttentionWay::tensor_cores && is_narrow) ||
         (way == AttentionWay::cudnn && is_narrow && has_cudnn_attention());
}

AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc) {
  if (desc.library != AttentionLibrary::own && is_for_cudnn(type, desc)) {
    return AttentionWay::cudnn;
  }
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
    const AttentionWay way = attention_way(exec, dtype_of<T>, in.desc);
    if (way == AttentionWay::reference || !suit_tensor_cores(in.q, in.k, in.v, in.o)) {
      return false;
    }
    if (exec.only_counts(kernel)) return true;
    LibraryCall call(exec, kernel);
    if (way == AttentionWay::cudnn) {
      forward_by_cudnn(exec, in);
    } else {
      require_launched(
          cuda::attention_forward(stream_of(exec), element_of<T>, task_of(in)), kernel);
    }
    call.finish();
    return true;
  }
  return false;
}

// Two kernels, of which a plan sees each, and the sum of a bias's gradient.
template <class T>
void backward_by_tensor_cores(const Exec& exec, const BackwardKernels& kernels,
                              const BackwardArguments<T>& in) {
  const cuda::AttentionBackwardTask task = task_of(in);
  const bool only_counts = exec.only_counts(kernels.delta);
  if (!exec.only_counts(kernels.whole) && !only_counts) {
    TRIREME_REQUIRE(has_whole_quads(in.d_q_sum),
                    "attention: the backward pass's scratch begins at no multiple of 16 "
                    "bytes");
    cudaStream_t const stream = stream_of(exec);
    LibraryCall first(exec, kernels.delta);
    require_launched(cuda::attention_delta(stream, element_of<T>, task), kernels.delta);
    first.finish();
    LibraryCall second(exec, kernels.whole);
    require_launched(cuda::attention_backward(stream, element_of<T>, task),
                     kernels.whole);
    second.finish();
  }
  sum_bias_windows<float>(exec, in.desc, bias_sums(task.shape), task.bias_sums,
                          in.d_bias);
}

template <class T>
bool backward_fast(const Exec& exec, const BackwardKernels& kernels,
                   const BackwardArguments<T>& in) {
  if constexpr (sizeof(T) == 2) {
    const AttentionWay way = attention_way(exec, dtype_of<T>, in.desc);
    if (way == AttentionWay::reference ||
        !suit_tensor_cores(in.q, in.k, in.v, in.o, in.d_o, in.d_q, in.d_k, in.d_v)) {
      return false;
    }
    if (way == AttentionWay::cudnn) {
      if (exec.only_counts(kernels.whole)) return true;
      LibraryCall call(exec, kernels.whole);
      backward_by_cudnn(exec, in);
      call.finish();
      return true;
    }
    backward_by_tensor_cores(exec, kernels, in);
    return true;
  }
  return false;
}

index_t fast_scratch_elements(DType type, const AttentionDesc& desc) {
  const bool may_be_taken =
      has_attention_way(type, AttentionWay::tensor_cores) && has_tensor_core_kernel(desc);
  const index_t own = may_be_taken ? tensor_core_scratch_elements(shape_of(desc)) : 0;
  if (desc.library == AttentionLibrary::own || !is_for_cudnn(type, desc)) return own;
  const std::size_t bytes =
      cudnn_scratch_bytes(desc, desc.library == AttentionLibrary::cudnn) +
      kCudnnAlignment;
  return std::max(own, static_cast<index_t>((bytes + sizeof(float) - 1) / sizeof(float)));
}

TRIREME_FOR_EACH_FAST_REAL(TRIREME_INSTANTIATE_FAST_ATTENTION)

}  // namespace trireme::kernels::impl

// kernels/attention_cuda.cpp — attention of 16-bit elements on a GPU's tensor cores,
// where there is a kernel for the shape; see impl/attention_fast.hpp.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/impl/attention_fast.hpp"
#include "kernels/impl/attention_task.hpp"

namespace trireme::kernels::impl {

namespace {

struct ChosenWay final : LibraryState {
  std::optional<AttentionWay> way;
};

ChosenWay& chosen_way(const Exec& exec) {
  return exec.library<ChosenWay>([] { return std::make_unique<ChosenWay>(); });
}

bool takes_tensor_cores(const Exec& exec, DType type, const AttentionDesc& desc) {
  return attention_way(exec, type, desc) == AttentionWay::tensor_cores;
}

void require_launched(const char* message, const Kernel& kernel) {
  TRIREME_REQUIRE(message == nullptr, "{}: {}", kernel.label, message);
}

index_t sum_elements(const AttentionDesc& desc) {
  return static_cast<index_t>(cuda::attention_sums_bytes(shape_of(desc)) / sizeof(float));
}

}  // namespace

bool has_attention_way(DType type, AttentionWay way) {
  const bool is_narrow = type == DType::bfloat16 || type == DType::float16;
  return way == AttentionWay::reference ||
         (way == AttentionWay::tensor_cores && is_narrow);
}

void set_attention_way(const Exec& exec, AttentionWay way) {
  chosen_way(exec).way = way;
}

AttentionWay attention_way(const Exec& exec, DType type, const AttentionDesc& desc) {
  const bool is_possible = has_attention_way(type, AttentionWay::tensor_cores) &&
                           has_tensor_core_kernel(desc) &&
                           cuda::has_room_for_attention(shape_of(desc));
  const auto chosen = chosen_way(exec).way;
  return is_possible && chosen != AttentionWay::reference ? AttentionWay::tensor_cores
                                                          : AttentionWay::reference;
}

template <class T>
bool forward_fast(const Exec& exec, const Kernel& kernel, const ForwardArguments<T>& in) {
  if constexpr (sizeof(T) == 2) {
    if (!takes_tensor_cores(exec, dtype_of<T>, in.desc) || !has_whole_quads(in.q) ||
        !has_whole_quads(in.k) || !has_whole_quads(in.v) || !has_whole_quads(in.o)) {
      return false;
    }
    if (exec.only_counts(kernel)) return true;
    LibraryCall call(exec, kernel);
    const cuda::AttentionForwardTask task{.shape = shape_of(in.desc),
                                          .dropout = dropout_of(in.desc, in.step.data()),
                                          .q = heads_of(in.q),
                                          .k = heads_of(in.k),
                                          .v = heads_of(in.v),
                                          .o = heads_of(in.o),
                                          .lse = in.lse};
    require_launched(
        cuda::attention_forward(exec.space().cuda_stream(), element_of<T>, task), kernel);
    call.finish();
    return true;
  }
  return false;
}

template <class T>
bool backward_fast(const Exec& exec, const BackwardKernels& kernels,
                   const BackwardArguments<T>& in) {
  if constexpr (sizeof(T) == 2) {
    if (!takes_tensor_cores(exec, dtype_of<T>, in.desc) || !has_whole_quads(in.q) ||
        !has_whole_quads(in.k) || !has_whole_quads(in.v) || !has_whole_quads(in.o) ||
        !has_whole_quads(in.d_o) || !has_whole_quads(in.d_q) ||
        !has_whole_quads(in.d_k) || !has_whole_quads(in.d_v)) {
      return false;
    }
    // Two kernels, of which a plan sees each.
    const bool only_counts = exec.only_counts(kernels.delta);
    if (exec.only_counts(kernels.whole) || only_counts) return true;
    TRIREME_REQUIRE(reinterpret_cast<std::uintptr_t>(in.d_q_sum) % 16 == 0,
                    "attention: the backward pass's scratch begins at no multiple of 16 "
                    "bytes");
    const cuda::AttentionBackwardTask task{
        .shape = shape_of(in.desc),
        .dropout = dropout_of(in.desc, in.step.data()),
        .q = heads_of(in.q),
        .k = heads_of(in.k),
        .v = heads_of(in.v),
        .o = heads_of(in.o),
        .d_o = heads_of(in.d_o),
        .lse = in.lse,
        .d_q = heads_of(in.d_q),
        .d_k = heads_of(in.d_k),
        .d_v = heads_of(in.d_v),
        .delta = in.delta,
        .d_q_sums = reinterpret_cast<cuda::FloatQuad*>(in.d_q_sum),
        .counters = reinterpret_cast<std::int32_t*>(in.d_q_sum + sum_elements(in.desc))};
    cudaStream_t const stream = exec.space().cuda_stream();
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

// The sums, and the counters behind them.
index_t fast_scratch_elements(DType type, const AttentionDesc& desc) {
  if (!has_attention_way(type, AttentionWay::tensor_cores) ||
      !has_tensor_core_kernel(desc)) {
    return 0;
  }
  const auto counters =
      cuda::attention_counters(shape_of(desc)) * sizeof(std::int32_t) / sizeof(float);
  return sum_elements(desc) + static_cast<index_t>(counters);
}

#define TRIREME_INSTANTIATE(T)                                                        \
  template bool forward_fast(const Exec&, const Kernel&, const ForwardArguments<T>&); \
  template bool backward_fast(const Exec&, const BackwardKernels&,                    \
                              const BackwardArguments<T>&);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels::impl

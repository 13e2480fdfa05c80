// kernels/impl/attention_task.hpp — attention's arguments as the kernels on tensor cores
// take them (kernels/cuda/attention.hpp).
//
// They are plain numbers and pointers, without Kokkos, so that a file of CUDA's compiler
// includes nothing else; tests that emulate a GPU fill them in by the same functions.
// What they cannot say (other head sizes, counts and distances beyond 32 bits, rows at
// odd addresses) is asked here, and the reference kernel takes it.
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_TASK_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_TASK_HPP_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/impl/attention_fast.hpp"

namespace trireme::kernels::impl {

template <class T>
inline constexpr cuda::Element element_of =
    std::is_same_v<T, bf16> ? cuda::Element::bf16 : cuda::Element::fp16;

template <class T>
cuda::ConstHeads heads_of(const HeadsView<const T>& view) {
  return {reinterpret_cast<const std::uint16_t*>(view.data),
          static_cast<std::int32_t>(view.sequence_stride),
          static_cast<std::int32_t>(view.batch_stride)};
}
template <class T>
cuda::Heads heads_of(const HeadsView<T>& view) {
  return {reinterpret_cast<std::uint16_t*>(view.data),
          static_cast<std::int32_t>(view.sequence_stride),
          static_cast<std::int32_t>(view.batch_stride)};
}

// Whether memory begins at a multiple of sixteen bytes.
inline bool has_whole_quads(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}
// Whether every row of the views does, at distances of 32 bits.
template <class T>
bool suits_tensor_cores(const HeadsView<T>& view) {
  constexpr index_t kElements = 16 / sizeof(T);
  constexpr index_t kMost = std::numeric_limits<std::int32_t>::max();
  return has_whole_quads(view.data) && view.sequence_stride % kElements == 0 &&
         view.batch_stride % kElements == 0 && view.sequence_stride <= kMost &&
         view.batch_stride <= kMost;
}
template <class... Views>
bool suit_tensor_cores(const Views&... views) {
  return (suits_tensor_cores(views) && ...);
}

// Whether there is a kernel for such a shape: head sizes, with a bias some of them, and
// counts of 32 bits.
inline bool has_tensor_core_kernel(const AttentionDesc& desc) {
  constexpr index_t kMost = std::numeric_limits<std::int32_t>::max() / 2;
  const bool has_heads = desc.has_bias ? cuda::is_head_dim_with_bias(desc.head_dim)
                                       : cuda::is_head_dim(desc.head_dim);
  return has_heads && desc.scale > 0.0 && desc.batch > 0 && desc.q_length > 0 &&
         desc.kv_length > 0 && desc.q_length < kMost && desc.kv_length < kMost &&
         desc.batch * desc.heads * desc.q_length < kMost &&
         desc.batch * desc.heads * desc.kv_length < kMost;
}

inline cuda::AttentionShape shape_of(const AttentionDesc& desc) {
  const auto narrow = [](index_t n) { return static_cast<std::int32_t>(n); };
  const bool is_document = desc.mask == MaskKind::document;
  const bool is_segment = desc.mask == MaskKind::segment;
  return {.batch = narrow(desc.batch),
          .q_length = narrow(desc.q_length),
          .kv_length = narrow(desc.kv_length),
          .heads = narrow(desc.heads),
          .kv_heads = narrow(desc.kv_heads),
          .head_dim = narrow(desc.head_dim),
          .scale = static_cast<float>(desc.scale),
          .is_causal = desc.mask == MaskKind::causal || is_document,
          .key_lengths = desc.mask == MaskKind::padding ? desc.key_lengths : nullptr,
          .query_lengths = desc.query_lengths,
          .document_begins = is_document || is_segment ? desc.document_begins : nullptr,
          .document_ends = is_segment ? desc.document_ends : nullptr,
          .has_bias = desc.has_bias};
}

inline cuda::AttentionDropout dropout_of(const AttentionDesc& desc,
                                         const StepState* step) {
  cuda::AttentionDropout dropout;
  dropout.threshold = random::DropoutWords::threshold(desc.dropout);
  if (dropout.threshold == 0) return dropout;
  dropout.keep_scale =
      static_cast<float>(random::DropoutWords::keep_scale(dropout.threshold));
  dropout.seed = &step->seed;
  dropout.sample_base = &step->sample_base;
  const random::Generator generator{
      .layer = desc.layer, .site = desc.site, .stream = random::Stream::dropout};
  dropout.site = generator.counter(0)[3];
  dropout.first_row = desc.head_begin * desc.mask_queries + desc.query_begin;
  dropout.rows_per_head = desc.mask_queries;
  dropout.calls_per_row =
      static_cast<std::int64_t>(random::DropoutWords::calls_per_key_row(
          static_cast<std::uint64_t>(desc.mask_keys)));
  return dropout;
}

// What the backward pass keeps, in floats: sums of d_q, behind them the counters, and
// windows of the bias's gradient.
inline index_t sum_elements(const cuda::AttentionShape& shape) {
  return cuda::tiles_of_queries(shape) * cuda::sum_quads_of_tile(shape.head_dim) * 4;
}
inline index_t tensor_core_scratch_elements(const cuda::AttentionShape& shape) {
  static_assert(sizeof(std::int32_t) == sizeof(float));
  return sum_elements(shape) + cuda::counters_of(shape) + cuda::bias_sums_of(shape);
}
inline BiasSums bias_sums(const cuda::AttentionShape& shape) {
  return {cuda::key_tiles_of(shape), cuda::window_of_bias(shape),
          cuda::kBackwardKeys + 1 - shape.kv_length, cuda::kBackwardKeys};
}

template <class T>
cuda::AttentionForwardTask task_of(const ForwardArguments<T>& in) {
  return {.shape = shape_of(in.desc),
          .dropout = dropout_of(in.desc, in.step.data()),
          .q = heads_of(in.q),
          .k = heads_of(in.k),
          .v = heads_of(in.v),
          .o = heads_of(in.o),
          .lse = in.lse,
          .bias = in.bias};
}

template <class T>
cuda::AttentionBackwardTask task_of(const BackwardArguments<T>& in) {
  const cuda::AttentionShape shape = shape_of(in.desc);
  float* const counters = in.d_q_sum + sum_elements(shape);
  return {.shape = shape,
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
          .counters = reinterpret_cast<std::int32_t*>(counters),
          .bias = in.bias,
          .bias_sums = counters + cuda::counters_of(shape)};
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_TASK_HPP_

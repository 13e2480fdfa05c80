// kernels/impl/attention_mask.hpp — which keys a query sees, and which of them dropout
// keeps.
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_MASK_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_MASK_HPP_

#include "base/types.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels::impl {

// Number of keys query q sees (they are the first ones).
KOKKOS_INLINE_FUNCTION index_t visible_keys(const AttentionDesc& desc, index_t q) {
  return desc.mask == MaskKind::causal ? q + 1 + (desc.kv_length - desc.q_length)
                                       : desc.kv_length;
}

struct AttentionDropout {
  random::Generator generator;
  std::uint64_t first_call = 0;  // of the row
  std::uint32_t threshold = 0;
};

// The mask of one row: query q of a head of a sample. `threshold` is
// random::DropoutWords::threshold(desc.dropout).
KOKKOS_INLINE_FUNCTION AttentionDropout dropout_row(const AttentionDesc& desc,
                                                    const kernels::StepState& step,
                                                    std::uint32_t threshold,
                                                    index_t sample, index_t head,
                                                    index_t q) {
  AttentionDropout row;
  row.threshold = threshold;
  row.generator.seed = step.seed;
  row.generator.owner = step.sample_base + static_cast<std::uint64_t>(sample);
  row.generator.layer = desc.layer;
  row.generator.site = desc.site;
  row.generator.stream = random::Stream::dropout;
  const auto rows = static_cast<std::uint64_t>(
      (desc.head_begin + head) * desc.mask_queries + desc.query_begin + q);
  row.first_call = rows * random::DropoutWords::calls_per_key_row(
                              static_cast<std::uint64_t>(desc.mask_keys));
  return row;
}

}  // namespace trireme::kernels::impl

#endif  // TRIREME_KERNELS_IMPL_ATTENTION_MASK_HPP_

// kernels/impl/attention_mask.hpp — which keys a query sees, and which of them dropout
// keeps.
#ifndef TRIREME_KERNELS_IMPL_ATTENTION_MASK_HPP_
#define TRIREME_KERNELS_IMPL_ATTENTION_MASK_HPP_

#include "base/types.hpp"
#include "kernels/attention.hpp"

namespace trireme::kernels::impl {

// Keys [begin, end). Where a query sees none, begin == end.
struct KeyRange {
  index_t begin = 0, end = 0;
};

// The keys that query q of a sample sees: with every kind of mask they lie together.
KOKKOS_INLINE_FUNCTION KeyRange visible_keys(const AttentionDesc& desc, index_t sample,
                                             index_t q) {
  const index_t position = q + (desc.kv_length - desc.q_length);
  switch (desc.mask) {
    case MaskKind::causal:
      return {0, position + 1};
    case MaskKind::padding:
      return {0, desc.key_lengths[sample]};
    case MaskKind::document:
      return {desc.document_begins[sample * desc.q_length + q], position + 1};
    case MaskKind::none:
      break;
  }
  return {0, desc.kv_length};
}

// Keys that queries [first, last] of a sample see: the union, without gaps.
KOKKOS_INLINE_FUNCTION KeyRange visible_keys(const AttentionDesc& desc, index_t sample,
                                             index_t first, index_t last) {
  // Neither end of a range comes before that of the query before it.
  return {visible_keys(desc, sample, first).begin, visible_keys(desc, sample, last).end};
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

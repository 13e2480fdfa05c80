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
  KOKKOS_INLINE_FUNCTION bool is_empty() const { return begin >= end; }
};

// The keys that the mask shows to query q of a sample: with every kind they lie together.
KOKKOS_INLINE_FUNCTION KeyRange keys_of_mask(const AttentionDesc& desc, index_t sample,
                                             index_t q) {
  const index_t position = q + (desc.kv_length - desc.q_length);
  const index_t in_field = q * desc.batch + sample;
  switch (desc.mask) {
    case MaskKind::causal:
      return {0, position + 1};
    case MaskKind::padding:
      return {0, desc.key_lengths[sample]};
    case MaskKind::document:
      return {desc.document_begins[in_field], position + 1};
    case MaskKind::segment:
      return {desc.document_begins[in_field], desc.document_ends[in_field]};
    case MaskKind::none:
      break;
  }
  return {0, desc.kv_length};
}

// Whether query q of a sample is padding.
KOKKOS_INLINE_FUNCTION bool is_padding(const AttentionDesc& desc, index_t sample,
                                       index_t q) {
  return desc.query_lengths != nullptr && q >= desc.query_lengths[sample];
}

// The keys that query q of a sample sees. Padding has an empty range where that of the
// last query ends, so that neither end of a range comes before that of the query before.
KOKKOS_INLINE_FUNCTION KeyRange visible_keys(const AttentionDesc& desc, index_t sample,
                                             index_t q) {
  if (!is_padding(desc, sample, q)) return keys_of_mask(desc, sample, q);
  const index_t length = desc.query_lengths[sample];
  const index_t end = length > 0 ? keys_of_mask(desc, sample, length - 1).end : 0;
  return {end, end};
}

// Keys that queries [first, last] of a sample see: the union, without gaps.
KOKKOS_INLINE_FUNCTION KeyRange visible_keys(const AttentionDesc& desc, index_t sample,
                                             index_t first, index_t last) {
  const KeyRange seen = {visible_keys(desc, sample, first).begin,
                         visible_keys(desc, sample, last).end};
  return seen.is_empty() ? KeyRange{} : seen;
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

// tensor/partition.cpp — see partition.hpp.
#include "tensor/partition.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme {

namespace {

index_t aligned(index_t count) {
  constexpr index_t kAlignment = Partition::kAlignment;
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Partition::Partition(const ParamRegistry& registry, int parts, index_t bucket_elements)
    : parts_(parts) {
  TRIREME_REQUIRE(parts >= 1, "parameters cut in {}", format_plural(parts, "part"));
  lay_out(registry);
  const std::vector<ParamUnit>& units = registry.units();
  std::vector<bool> alone(units.size(), false);
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].borrows) alone.at(*units[u].borrows) = true;
    for (std::size_t p = units[u].begin; p < units[u].end; ++p) {
      if (registry.spec(p).tie != Tie::none) alone[u] = true;
    }
  }
  // From the end, in the order in which the backward pass completes them.
  for (std::size_t u = units.size(); u-- > 0;) {
    const bool joins = !buckets_.empty() && !alone[u] && !buckets_.back().stands_alone &&
                       buckets_.back().range.size() < bucket_elements;
    const index_t begin = offsets_[units[u].begin];
    if (joins) {
      buckets_.back().first_unit = u;
      buckets_.back().range.begin = begin;
    } else {
      buckets_.push_back({.first_unit = u,
                          .end_unit = u + 1,
                          .range = {begin, offsets_[units[u].end]},
                          .cuts = {},
                          .stands_alone = alone[u]});
    }
  }
  std::reverse(buckets_.begin(), buckets_.end());
  bucket_of_unit_.resize(units.size());
  unit_of_param_.resize(registry.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    for (std::size_t u = bucket.first_unit; u < bucket.end_unit; ++u) {
      bucket_of_unit_[u] = b;
      for (std::size_t p = units[u].begin; p < units[u].end; ++p) unit_of_param_[p] = u;
    }
    cut(registry, bucket);
  }
}

void Partition::lay_out(const ParamRegistry& registry) {
  for (const ParamSpec& spec : registry.specs()) {
    offsets_.push_back(total_);
    counts_.push_back(element_count(spec.shard.local_shape));
    total_ += aligned(counts_.back());
  }
  offsets_.push_back(total_);
}

// The end of a row of a parameter that is nearest to element `at` of the slab; what
// aligns the next parameter belongs to the one before it.
index_t Partition::row_boundary(const ParamRegistry& registry, const Bucket& bucket,
                                index_t at) const {
  const auto next = std::upper_bound(offsets_.begin(), offsets_.end(), at);
  const auto param = static_cast<std::size_t>(next - offsets_.begin()) - 1;
  if (at >= bucket.range.end) return bucket.range.end;
  const Shape& shape = registry.spec(param).shard.local_shape;
  const index_t row = shape.size() < 2 ? kAlignment : counts_[param] / shape[0];
  const index_t rows = row == 0 ? 0 : (at - offsets_[param] + row / 2) / row;
  const index_t end = offsets_[param] + rows * row;
  return end >= offsets_[param] + counts_[param] ? offsets_[param + 1] : end;
}

void Partition::cut(const ParamRegistry& registry, Bucket& bucket) const {
  bucket.cuts.push_back(0);
  const index_t size = bucket.range.size();
  for (int part = 1; part < parts_; ++part) {
    // size * part would overflow for the largest models on the most ranks.
    const index_t even = size / parts_ * part + size % parts_ * part / parts_;
    const index_t at = row_boundary(registry, bucket, bucket.range.begin + even);
    bucket.cuts.push_back(std::max(bucket.cuts.back(), at - bucket.range.begin));
  }
  bucket.cuts.push_back(size);
}

std::size_t Partition::bucket_of_param(std::size_t param) const {
  return bucket_of_unit_.at(unit_of_param_.at(param));
}

index_t Partition::shard_elements(int part) const {
  index_t elements = 0;
  for (const Bucket& bucket : buckets_) elements += aligned(bucket.part_size(part));
  return elements;
}

index_t Partition::shard_offset(std::size_t bucket, int part) const {
  index_t offset = 0;
  for (std::size_t b = 0; b < bucket; ++b) offset += aligned(buckets_[b].part_size(part));
  return offset;
}

IndexRange Partition::share(std::size_t param, int part) const {
  const Bucket& bucket = buckets_.at(bucket_of_param(param));
  const auto p = static_cast<std::size_t>(part);
  const index_t begin = offsets_[param];
  const index_t first = bucket.range.begin + bucket.cuts.at(p) - begin;
  const index_t last = bucket.range.begin + bucket.cuts.at(p + 1) - begin;
  const index_t count = counts_[param];
  return {std::clamp<index_t>(first, 0, count), std::clamp<index_t>(last, 0, count)};
}

}  // namespace trireme

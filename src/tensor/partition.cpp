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
  make_buckets(registry, bucket_elements);
  make_parts_equal(registry);
}

void Partition::lay_out(const ParamRegistry& registry) {
  for (const ParamSpec& spec : registry.specs()) {
    offsets_.push_back(total_);
    counts_.push_back(spec.shard.real_elements());
    total_ += aligned(element_count(spec.shard.local_shape));
  }
}

void Partition::make_buckets(const ParamRegistry& registry, index_t bucket_elements) {
  const std::vector<ParamUnit>& units = registry.units();
  std::vector<bool> alone(units.size(), false);
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].borrows) alone.at(*units[u].borrows) = true;
    for (std::size_t p = units[u].begin; p < units[u].end; ++p) {
      if (registry.spec(p).tie != Tie::none) alone[u] = true;
    }
  }
  // Buckets are made from the end on, which is the order in which the backward pass
  // completes them. Where each unit is to be one, that holds for a unit without
  // parameters too: it would join units of another chunk's pass.
  index_t end = total_;
  for (std::size_t u = units.size(); u-- > 0;) {
    const bool joins = !buckets_.empty() && !alone[u] && !buckets_.back().stands_alone &&
                       bucket_elements > 1 &&
                       buckets_.back().range.size() < bucket_elements;
    const index_t begin = units[u].begin == units[u].end ? end : offsets_[units[u].begin];
    if (joins) {
      buckets_.back().first_unit = u;
      buckets_.back().range.begin = begin;
    } else {
      buckets_.push_back({.first_unit = u,
                          .end_unit = u + 1,
                          .range = {begin, end},
                          .stands_alone = alone[u]});
    }
    end = begin;
  }
  std::reverse(buckets_.begin(), buckets_.end());
}

// Every bucket grows at its end until its parts are equal, and everything that lies
// behind moves on.
void Partition::make_parts_equal(const ParamRegistry& registry) {
  const std::vector<ParamUnit>& units = registry.units();
  bucket_of_unit_.resize(units.size());
  unit_of_param_.resize(registry.size());
  index_t shift = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    for (std::size_t u = bucket.first_unit; u < bucket.end_unit; ++u) {
      bucket_of_unit_[u] = b;
      for (std::size_t p = units[u].begin; p < units[u].end; ++p) {
        unit_of_param_[p] = u;
        offsets_[p] += shift;
      }
    }
    const index_t size = bucket.range.size();
    bucket.part_size = aligned((size + parts_ - 1) / parts_);
    const index_t begin = bucket.range.begin + shift;
    bucket.range = {begin, begin + bucket.part_size * parts_};
    shift += bucket.range.size() - size;
  }
  total_ += shift;
}

std::size_t Partition::bucket_of_param(std::size_t param) const {
  return bucket_of_unit_.at(unit_of_param_.at(param));
}

IndexRange Partition::share(std::size_t param, int part) const {
  const IndexRange mine = buckets_.at(bucket_of_param(param)).part(part);
  const index_t begin = offsets_[param];
  const index_t count = counts_[param];
  return {std::clamp<index_t>(mine.begin - begin, 0, count),
          std::clamp<index_t>(mine.end - begin, 0, count)};
}

}  // namespace trireme

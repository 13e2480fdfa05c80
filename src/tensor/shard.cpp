// tensor/shard.cpp — see shard.hpp.
#include "tensor/shard.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace trireme {

ShardSpec replicated(Shape global_shape) {
  ShardSpec spec;
  spec.local_shape = global_shape;
  spec.global_shape = std::move(global_shape);
  return spec;
}

index_t ShardSpec::real_elements() const {
  if (dimension != 0) return element_count(local_shape);
  const index_t rows =
      segments.empty() ? 0 : segments.back().local_begin + segments.back().extent;
  return rows == 0 ? 0 : element_count(local_shape) / local_shape[0] * rows;
}

ShardSpec split(Shape global_shape, int dimension, int parts, int rank,
                index_t multiple) {
  const index_t extent = global_shape.at(static_cast<std::size_t>(dimension));
  TRIREME_REQUIRE(multiple == 0 || dimension == 0,
                  "dimension {} of {} is padded: only rows can be", dimension,
                  to_string(global_shape));
  TRIREME_REQUIRE(multiple > 0 || extent % parts == 0,
                  "dimension {} of {} is split in {}, which do not divide {}", dimension,
                  to_string(global_shape), format_plural(parts, "part"), extent);
  const index_t share = largest_share(extent, parts);
  const index_t begin = std::min(extent, share * rank);
  const index_t end = std::min(extent, begin + share);
  const index_t local =
      multiple > 0 ? (share + multiple - 1) / multiple * multiple : share;
  ShardSpec spec;
  spec.local_shape = global_shape;
  spec.local_shape[static_cast<std::size_t>(dimension)] = local;
  spec.global_shape = std::move(global_shape);
  spec.dimension = dimension;
  if (end > begin) spec.segments.push_back({begin, 0, end - begin});
  return spec;
}

ShardSpec split_blocks(Shape global_shape, const std::vector<index_t>& block_extents,
                       int parts, int rank) {
  const index_t total =
      std::accumulate(block_extents.begin(), block_extents.end(), index_t{0});
  TRIREME_REQUIRE(total == global_shape.at(0), "blocks of {} in all cut a tensor of {}",
                  format_plural(total, "row"), to_string(global_shape));
  ShardSpec spec;
  spec.local_shape = global_shape;
  spec.local_shape[0] = total / parts;
  spec.global_shape = std::move(global_shape);
  spec.dimension = 0;
  index_t global_begin = 0;
  index_t local_begin = 0;
  for (const index_t extent : block_extents) {
    TRIREME_REQUIRE(extent % parts == 0, "a block of {} is split in {}",
                    format_plural(extent, "row"), format_plural(parts, "part"));
    const index_t local = extent / parts;
    spec.segments.push_back({global_begin + local * rank, local_begin, local});
    global_begin += extent;
    local_begin += local;
  }
  return spec;
}

}  // namespace trireme

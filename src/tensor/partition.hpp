// tensor/partition.hpp — how the parameters of a rank are cut over its gradient group.
//
// All parameters lie one after the other in a slab. Consecutive units make a *bucket*,
// and every bucket is cut in as many parts as the gradient group has ranks: rank r keeps
// part r of each (ZeRO; Rajbhandari et al. 2020), its *shard*. A bucket is what one
// reduce-scatter or all-gather moves. Libraries move blocks of equal size that start at
// aligned addresses (NCCL knows no others), so zeros behind a bucket's last parameter
// make its parts equal. A cut may lie inside a row of a matrix.
//
// Example: a bucket of a (5, 40) matrix and a vector of 40, cut in three parts:
//   the slab   0 ... 200 matrix, zeros to 256, ... 296 vector, zeros to 384
//   the parts  [0, 128)  [128, 256)  [256, 384)
//   the matrix [0, 128)  [128, 200)  nothing      that is 3 rows and 8 elements, the rest
#ifndef TRIREME_TENSOR_PARTITION_HPP_
#define TRIREME_TENSOR_PARTITION_HPP_

#include <vector>

#include "base/types.hpp"
#include "tensor/param_registry.hpp"

namespace trireme {

// Elements [begin, end).
struct IndexRange {
  index_t begin = 0;
  index_t end = 0;
  index_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

struct Bucket {
  std::size_t first_unit = 0, end_unit = 0;
  IndexRange range;       // of the slab, with the zeros that make parts equal
  index_t part_size = 0;  // elements of a part, a multiple of Partition::kAlignment
  // A unit of another bucket borrows from it, or another stage shares a parameter of it.
  bool stands_alone = false;

  IndexRange part(int part) const {  // of the slab
    const index_t begin = range.begin + part_size * part;
    return {begin, begin + part_size};
  }
};

class Partition {
 public:
  // Elements at which parameters, and shares of buckets, start: multiples of this.
  static constexpr index_t kAlignment = 64;

  Partition() = default;
  // A bucket is closed when it has `bucket_elements` or more; a unit that others borrow
  // from, or that has a tied parameter, has one of its own.
  Partition(const ParamRegistry& registry, int parts, index_t bucket_elements);

  int parts() const { return parts_; }
  // Elements of the slab, padding included.
  index_t slab_elements() const { return total_; }
  index_t offset(std::size_t param) const { return offsets_.at(param); }

  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t bucket_of_unit(std::size_t unit) const { return bucket_of_unit_.at(unit); }
  std::size_t bucket_of_param(std::size_t param) const;

  // A part's shards of all buckets one after the other: the same for every part.
  index_t shard_elements() const { return total_ / parts_; }
  index_t shard_offset(std::size_t bucket) const {
    return buckets_.at(bucket).range.begin / parts_;
  }
  // What a part has of a parameter, in elements of its flat local array; rows of padding
  // are in no part.
  IndexRange share(std::size_t param, int part) const;

 private:
  void lay_out(const ParamRegistry& registry);
  void make_buckets(const ParamRegistry& registry, index_t bucket_elements);
  void make_parts_equal(const ParamRegistry& registry);

  int parts_ = 1;
  std::vector<index_t> offsets_;  // of the parameters
  std::vector<index_t> counts_;   // their elements, without rows of padding
  index_t total_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_unit_;
  std::vector<std::size_t> unit_of_param_;
};

}  // namespace trireme

#endif  // TRIREME_TENSOR_PARTITION_HPP_

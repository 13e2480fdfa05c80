// kernels/relative_bias.hpp — T5's relative position bias: what attention adds to a score
// depends on the head and on the bucket of the distance between query and key.
//
//   bias[head, i] = table[bucket(first + i), head]
// for the distances query - key from `first` on. Near distances have a bucket each, far
// ones share buckets whose widths grow, up to max_distance. Raffel et al. 2020,
// arXiv:1910.10683; docs/math/relative_bias.md
#ifndef TRIREME_KERNELS_RELATIVE_BIAS_HPP_
#define TRIREME_KERNELS_RELATIVE_BIAS_HPP_

#include <cstdint>

#include "base/exec.hpp"
#include "kernels/accumulate.hpp"

namespace trireme::kernels {

// Which directions are told apart: both (an encoder), or only keys before the query (a
// decoder, whose queries see no others).
enum class RelativeDirections { both, past };

// Distances query - key [begin, end).
struct DistanceRange {
  index_t begin = 0, end = 0;
};

// The buckets of a model. In both directions the first half is of keys at and before the
// query, the second of keys behind it.
class RelativeBuckets {
 public:
  // Of one direction.
  static constexpr int kMost = 64;

  // Throws where a direction has fewer than two buckets or more than kMost, or where
  // max_distance is not beyond the buckets of single distances.
  RelativeBuckets(index_t buckets, index_t max_distance, RelativeDirections directions);

  index_t buckets() const { return is_directed_ ? per_direction_ : 2 * per_direction_; }

  KOKKOS_INLINE_FUNCTION index_t bucket(index_t distance) const {
    const bool is_behind = distance < 0;
    if (is_behind && is_directed_) return 0;
    const index_t length = is_behind ? -distance : distance;
    int last = 0;
    for (int b = 1; b < per_direction_; ++b) last = nearest_[b] <= length ? b : last;
    return last + (is_behind ? per_direction_ : 0);
  }

  // The distances of a bucket, which lie together, of those in `all`.
  KOKKOS_INLINE_FUNCTION DistanceRange distances(index_t bucket,
                                                 const DistanceRange& all) const {
    const bool is_behind = bucket >= per_direction_;
    const auto b = static_cast<int>(is_behind ? bucket - per_direction_ : bucket);
    const bool is_last = b + 1 == per_direction_;
    // Of the lengths [from, to); nobody is behind at length 0.
    const index_t from = is_behind && b == 0 ? 1 : nearest_[b];
    const index_t to = is_last ? kNoEnd : nearest_[b + 1];
    DistanceRange range{from, to};
    if (is_behind) range = {1 - to, 1 - from};
    if (is_directed_ && b == 0) range.begin = -kNoEnd;
    if (range.begin < all.begin) range.begin = all.begin;
    if (range.end > all.end) range.end = all.end;
    if (range.end < range.begin) range.end = range.begin;
    return range;
  }

 private:
  static constexpr index_t kNoEnd = index_t{1} << 40;

  std::int32_t per_direction_;
  bool is_directed_;
  // The least distance of each bucket of a direction; of one that is empty, that of the
  // next.
  std::int32_t nearest_[kMost];
};

// table (buckets, heads), bias (heads, distances).
template <class T>
void relative_bias_forward(const Exec& exec, const RelativeBuckets& buckets,
                           View2<const T> table, index_t first,
                           View2<Accumulator<T>> bias);

// d_table[b, head] += or = the sum of d_bias[head, .] over the distances of bucket b, in
// their order, by one thread; rounded once where G is narrower.
template <class A, class G = A>
void relative_bias_backward(const Exec& exec, const RelativeBuckets& buckets,
                            View2<const A> d_bias, index_t first, Accumulate accumulate,
                            View2<G> d_table);

}  // namespace trireme::kernels

#endif  // TRIREME_KERNELS_RELATIVE_BIAS_HPP_

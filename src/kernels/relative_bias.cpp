// kernels/relative_bias.cpp — the table of a relative position bias spread over
// distances, and its gradient gathered from them.
//
// T5 finds a far distance's bucket by a logarithm in 32 bits, whose rounding depends on
// the library. Here the least distance of each bucket is found in whole numbers, once:
// tests hold it to the table that PyTorch makes. Derivation: docs/math/relative_bias.md
#include "kernels/relative_bias.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "kernels/impl/rows.hpp"

namespace trireme::kernels {

namespace {

// A product of many factors, as large as it gets: 32 bits a digit, the lowest first.
class LargeProduct {
 public:
  LargeProduct& times(index_t factor, index_t power) {
    for (index_t i = 0; i < power; ++i) multiply(static_cast<std::uint64_t>(factor));
    return *this;
  }
  bool operator>=(const LargeProduct& other) const {
    if (digits_.size() != other.digits_.size()) {
      return digits_.size() > other.digits_.size();
    }
    return !std::lexicographical_compare(digits_.rbegin(), digits_.rend(),
                                         other.digits_.rbegin(), other.digits_.rend());
  }

 private:
  void multiply(std::uint64_t factor) {
    std::uint64_t carry = 0;
    for (std::uint32_t& digit : digits_) {
      carry += factor * digit;
      digit = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) digits_.push_back(static_cast<std::uint32_t>(carry));
  }
  std::vector<std::uint32_t> digits_{1};
};

// The least m with single + floor(log(m / single) / log(farthest / single) * shared) >=
// single + j, which is (m / single)^shared >= (farthest / single)^j.
index_t nearest_of_shared(index_t j, index_t single, index_t shared, index_t farthest) {
  const LargeProduct bound = LargeProduct().times(farthest, j).times(single, shared - j);
  index_t below = single, reached = farthest;  // j < shared, so that farthest reaches it
  while (below < reached) {
    const index_t middle = (below + reached) / 2;
    if (LargeProduct().times(middle, shared) >= bound) {
      reached = middle;
    } else {
      below = middle + 1;
    }
  }
  return reached;
}

}  // namespace

RelativeBuckets::RelativeBuckets(index_t buckets, index_t max_distance,
                                 RelativeDirections directions)
    : per_direction_(0), is_directed_(directions == RelativeDirections::past) {
  const index_t parts = is_directed_ ? 1 : 2;
  const index_t each = buckets / parts, single = each / 2;
  TRIREME_REQUIRE(buckets % parts == 0 && each >= 2 && each <= kMost,
                  "relative position bias: {} are not {} to {} for each of {}",
                  format_plural(buckets, "bucket"), 2, kMost,
                  format_plural(parts, "direction"));
  constexpr index_t kFarthest = index_t{1} << 30;
  TRIREME_REQUIRE(max_distance > single && max_distance <= kFarthest,
                  "relative position bias: a maximum distance of {} is not above the {} "
                  "that have buckets of their own, or above {}",
                  max_distance, single, kFarthest);
  per_direction_ = static_cast<std::int32_t>(each);
  for (index_t b = 0; b < each; ++b) {
    nearest_[b] = static_cast<std::int32_t>(
        b <= single ? b
                    : nearest_of_shared(b - single, single, each - single, max_distance));
  }
}

template <class T>
void relative_bias_forward(const Exec& exec, const RelativeBuckets& buckets,
                           View2<const T> table, index_t first,
                           View2<Accumulator<T>> bias) {
  using A = Accumulator<T>;
  const auto heads = static_cast<index_t>(bias.extent(0));
  const auto distances = static_cast<index_t>(bias.extent(1));
  require_extents("relative_bias_forward", "table", table, buckets.buckets(), heads);

  const T* const table_data = table.data();
  A* const bias_data = bias.data();
  launch(
      exec, {"trireme::kernels::relative_bias_forward", {.bytes = bytes_of(table, bias)}},
      heads * distances, KOKKOS_LAMBDA(const index_t element) {
        const index_t head = element / distances, i = element % distances;
        bias_data[element] =
            static_cast<A>(table_data[buckets.bucket(first + i) * heads + head]);
      });
}

template <class A, class G>
void relative_bias_backward(const Exec& exec, const RelativeBuckets& buckets,
                            View2<const A> d_bias, index_t first, Accumulate accumulate,
                            View2<G> d_table) {
  const auto heads = static_cast<index_t>(d_bias.extent(0));
  const auto distances = static_cast<index_t>(d_bias.extent(1));
  require_extents("relative_bias_backward", "d_table", d_table, buckets.buckets(), heads);

  const A* const d_bias_data = d_bias.data();
  G* const table_data = d_table.data();
  const bool adds = accumulate == Accumulate::yes;
  launch_rows(
      exec,
      {"trireme::kernels::relative_bias_backward",
       {.bytes = bytes_of(d_bias, d_table) + (adds ? bytes_of(d_table) : 0)}},
      buckets.buckets() * heads, KOKKOS_LAMBDA(const RowTeam& team, index_t element) {
        const index_t head = element % heads;
        const DistanceRange range =
            buckets.distances(element / heads, {first, first + distances});
        const A* const of_bucket = d_bias_data + head * distances - first + range.begin;
        const index_t count = range.begin < range.end ? range.end - range.begin : 0;
        const A sum =
            sum_columns<A>(team, count, [=](index_t i) { return of_bucket[i]; });
        for_each_column(team, 1, [=](index_t i) {
          G* const to = table_data + element + i;
          *to = static_cast<G>(adds ? static_cast<A>(*to) + sum : sum);
        });
      });
}

#define TRIREME_INSTANTIATE(T) \
  template decltype(relative_bias_forward<T>) relative_bias_forward<T>;
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(A, G) \
  template decltype(relative_bias_backward<A, G>) relative_bias_backward<A, G>;
TRIREME_INSTANTIATE(float, float)
TRIREME_INSTANTIATE(double, double)
TRIREME_INSTANTIATE(float, bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::kernels

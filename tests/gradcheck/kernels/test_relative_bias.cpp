// The table of a relative position bias, in both directions and in one.
#include "kernels/relative_bias.hpp"

#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

TEST(RelativeBiasGradient, OfTheTable) {
  constexpr index_t kHeads = 3, kFirst = -40, kCount = 75, kBuckets = 16;
  for (const auto directions : {RelativeDirections::both, RelativeDirections::past}) {
    const RelativeBuckets buckets(kBuckets, 24, directions);
    const Point weights = test::uniform(kHeads * kCount, 1);
    const Array<double> d_bias(weights), d_table(kBuckets * kHeads);
    relative_bias_backward<double>(Exec(), buckets, d_bias.cmatrix(kHeads, kCount),
                                   kFirst, Accumulate::no,
                                   d_table.matrix(kBuckets, kHeads));
    const auto loss = [&](const Point& p) {
      const Array<double> table(p), bias(kHeads * kCount);
      relative_bias_forward<double>(Exec(), buckets, table.cmatrix(kBuckets, kHeads),
                                    kFirst, bias.matrix(kHeads, kCount));
      const Point values = bias.values();
      double sum = 0;
      for (std::size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
      return sum;
    };
    EXPECT_TRUE(test::check_gradient(loss, test::uniform(kBuckets * kHeads, 2),
                                     d_table.values()));
  }
}

}  // namespace
}  // namespace trireme::kernels

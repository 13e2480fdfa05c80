// The gradient of a bias by distance against plain loops over the windows that it is the
// sum of: those of tiles of queries, and those of tiles of keys, which lie the other way.
#include "kernels/impl/attention_bias.hpp"

#include <vector>

#include "kernels/impl/attention_fast.hpp"
#include "support/arrays.hpp"
#include "unit/kernels/attention_problem.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

template <class Acc>
class AttentionBiasOf : public ::testing::Test {};
using Sums = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionBiasOf, Sums);

template <class Acc>
void expect_sums(const AttentionDesc& desc, const impl::BiasSums& sums) {
  const index_t heads = desc.heads, per_head = sums.windows * sums.length;
  const index_t count = impl::distances(desc);
  const Array<Acc> windows(test::uniform(desc.batch * heads * per_head, 7));
  const Array<Acc> d_bias(heads * count, NAN);
  impl::sum_bias_windows<Acc>(Exec(), desc, sums, windows.cvector().data(),
                              d_bias.vector().data());
  const auto from = windows.values();
  std::vector<double> want(extent(heads * count));
  for (index_t sample = 0; sample < desc.batch; ++sample) {
    for (index_t head = 0; head < heads; ++head) {
      for (index_t w = 0; w < sums.windows; ++w) {
        for (index_t i = 0; i < sums.length; ++i) {
          const index_t distance = i - sums.shift - w * sums.step;
          if (distance < 0 || distance >= count) continue;
          want[extent(head * count + distance)] +=
              from[extent((sample * heads + head) * per_head + w * sums.length + i)];
        }
      }
    }
  }
  test::expect_close(d_bias.values(), want, 128 * test::rounding<Acc>(), 8, "d_bias");
}

TYPED_TEST(AttentionBiasOf, IsTheSumOfAllWindows) {
  for (const auto& [batch, heads, queries, keys] :
       {std::tuple{1, 1, 1, 1}, {2, 3, 100, 100}, {5, 2, 64, 200}, {33, 2, 130, 70}}) {
    SCOPED_TRACE(::testing::Message() << batch << " samples, " << heads << " heads, "
                                      << queries << " queries, " << keys << " keys");
    AttentionDesc desc = attention_test::make(batch, queries, keys, heads, heads, 64);
    desc.has_bias = true;
    expect_sums<TypeParam>(desc, impl::BiasWindows(desc, 64).sums(desc));
    // A window for each 128 keys, of all distances of the queries to them.
    expect_sums<TypeParam>(desc,
                           {(keys + 127) / 128, queries + 127, 127 - keys + 1, 128});
  }
}

}  // namespace
}  // namespace trireme::kernels

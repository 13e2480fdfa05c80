// Cross-entropy over a group of one: the plain log-softmax, totals added to what is
// there, no message sent.
#include "parallel/cross_entropy.hpp"

#include "comm/group.hpp"
#include "comm/self_communicator.hpp"
#include "support/arrays.hpp"

namespace trireme::parallel {
namespace {

using test::Array;
using Values = std::vector<double>;

template <class T>
class CrossEntropyAlone : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyAlone, test::RealTypes);

TYPED_TEST(CrossEntropyAlone, IsThePlainLoss) {
  using T = TypeParam;
  using A = Accumulator<T>;
  comm::Group group(comm::make_self_communicator("tensor"));
  for (const index_t rows : {1, 33}) {
    for (const index_t vocabulary : {1, 31, 257}) {
      const index_t columns = vocabulary + 3;  // padded
      const Array<T> logits(test::uniform(rows * columns, 1, -5, 5));
      Values labels = test::uniform(rows, 2, 0, static_cast<double>(vocabulary));
      Values mask(rows, 1.0);
      for (index_t r = 0; r < rows; ++r) {
        labels[r] = std::floor(labels[r]);
        if (r % 4 == 1) mask[r] = 0;
      }
      const Array<std::int32_t> label_array(labels);
      const Array<float> mask_array(mask);
      const Array<A> row_max(rows), sums(2 * rows), loss(rows);
      const Array<double> totals({100.0, 200.0});
      const SoftmaxStatistics<T> statistics{row_max.vector(), sums.matrix(rows, 2)};
      vocab_parallel_softmax_statistics<T>(Exec(), group, {0, vocabulary},
                                           logits.cmatrix(rows, columns),
                                           label_array.cvector(), statistics);
      kernels::cross_entropy_loss<T>(Exec(), row_max.cvector(), sums.cmatrix(rows, 2),
                                     mask_array.cvector(), loss.vector(),
                                     totals.vector());

      const Values x = logits.values(), got = loss.values(), largest = row_max.values(),
                   parts = sums.values();
      const double u = test::rounding<A>();
      double total = 100, count = 200;
      for (index_t r = 0; r < rows; ++r) {
        const double* row = x.data() + r * columns;
        const double top = *std::max_element(row, row + vocabulary);
        double sum = 0;
        for (index_t j = 0; j < vocabulary; ++j) sum += std::exp(row[j] - top);
        const double label_logit = row[static_cast<index_t>(labels[r])];
        const double want = top + std::log(sum) - label_logit;
        ASSERT_NEAR(got[r], want, 32 * u * (1 + std::abs(want)));
        ASSERT_EQ(largest[r], top);
        ASSERT_NEAR(parts[2 * r], sum, 32 * u * sum);
        ASSERT_EQ(parts[2 * r + 1], label_logit);
        total += mask[r] * want;
        count += mask[r];
      }
      EXPECT_NEAR(totals.values()[0], total, 100 * u * total);
      EXPECT_EQ(totals.values()[1], count);
    }
  }
  EXPECT_EQ(group.traffic().calls, 0);
}

}  // namespace
}  // namespace trireme::parallel

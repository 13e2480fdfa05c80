// The masked loss of a batch, times the loss gradient scale, as a function of the logits.
#include "kernels/cross_entropy.hpp"

#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 4, kColumns = 37, kValid = 35;
constexpr double kScale = 0.75;

TEST(CrossEntropyGradient, OfTheLogits) {
  const Point at = test::uniform(kRows * kColumns, 1, -4, 4);
  const Array<std::int32_t> labels({0, 34, 12, 7});
  const Array<float> mask({1.0, 0.5, 0.0, 1.0});
  const Array<double> row_max(kRows), sums(2 * kRows), losses(kRows);
  const VocabRange range{0, kValid};
  const auto loss = [&](const Point& p) {
    const Array<double> logits(p), totals(2);
    cross_entropy_row_max_and_sums<double>(Exec(), range, logits.cmatrix(kRows, kColumns),
                                           labels.cvector(), row_max.vector(),
                                           sums.matrix(kRows, 2));
    cross_entropy_loss<double>(Exec(), row_max.cvector(), sums.cmatrix(kRows, 2),
                               mask.cvector(), losses.vector(), totals.vector());
    return kScale * totals.values()[0];
  };
  loss(at);  // fills row_max and sums
  const Kokkos::View<StepState, DeviceMemory> step("step");
  Kokkos::deep_copy(step, StepState{});
  const Array<double> d_logits(at);
  cross_entropy_backward<double>(Exec(), range, StepStateView(step.data()), {0, kScale},
                                 labels.cvector(), mask.cvector(), row_max.cvector(),
                                 sums.cmatrix(kRows, 2),
                                 d_logits.matrix(kRows, kColumns));
  const Point gradient = d_logits.values();
  EXPECT_TRUE(test::check_gradient(loss, at, gradient));
  const Array<double> in_place(at);
  cross_entropy_in_place<double>(Exec(), range, StepStateView(step.data()), {0, kScale},
                                 labels.cvector(), mask.cvector(),
                                 in_place.matrix(kRows, kColumns), row_max.vector(),
                                 sums.matrix(kRows, 2));
  EXPECT_TRUE(test::check_gradient(loss, at, in_place.values()));
}

}  // namespace
}  // namespace trireme::kernels

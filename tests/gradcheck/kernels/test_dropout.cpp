// Bias, dropout and residual: linear in each, with the mask of forward drawn again.
#include "kernels/dropout.hpp"

#include <cmath>

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 6, kH = 33;
constexpr DropoutDesc kDesc{
    .probability = 0.4, .batch = 2, .sequence_begin = 3, .layer = 2};
const Point kX = test::uniform(kRows * kH, 1), kBias = test::uniform(kH, 2),
            kResidual = test::uniform(kRows * kH, 3), kDy = test::uniform(kRows * kH, 4);

double loss(const Point& x, const Point& bias, const Point& residual) {
  const Array<double> xs(x), biases(bias), residuals(residual), y(kRows * kH);
  const Kokkos::View<StepState, DeviceMemory> step("step");
  bias_dropout_add_forward<double>(Exec(), kDesc, StepStateView(step.data()),
                                   xs.cmatrix(kRows, kH), biases.cvector(),
                                   residuals.cmatrix(kRows, kH), y.matrix(kRows, kH));
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i];
  return sum;
}

TEST(DropoutGradient, OfXBiasAndResidual) {
  const Kokkos::View<StepState, DeviceMemory> step("step");
  const Array<double> d_y(kDy), d_x(kRows * kH), d_bias(kH),
      scratch(sum_rows_scratch_elements(kH));
  dropout_backward<double>(Exec(), kDesc, StepStateView(step.data()),
                           d_y.cmatrix(kRows, kH), d_x.matrix(kRows, kH));
  sum_rows<double>(Exec(), d_x.cmatrix(kRows, kH), scratch.vector(), Accumulate::no,
                   d_bias.vector());
  EXPECT_TRUE(test::check_gradient(
      [](const Point& p) { return loss(p, kBias, kResidual); }, kX, d_x.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, p, kResidual); },
                                   kBias, d_bias.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, kBias, p); },
                                   kResidual, kDy));
}

TEST(DropoutGradient, OfXTimesAFactor) {
  for (const double probability : {0.0, 0.4}) {
    DropoutDesc desc = kDesc;
    desc.probability = probability;
    desc.factor = 1 / std::sqrt(33.0);
    const Kokkos::View<StepState, DeviceMemory> step("step");
    const Array<double> d_y(kDy), d_x(kRows * kH);
    dropout_backward<double>(Exec(), desc, StepStateView(step.data()),
                             d_y.cmatrix(kRows, kH), d_x.matrix(kRows, kH));
    const auto loss = [&](const Point& p) {
      const Array<double> x(p), y(kRows * kH);
      bias_dropout_add_forward<double>(Exec(), desc, StepStateView(step.data()),
                                       x.cmatrix(kRows, kH), {}, {}, y.matrix(kRows, kH));
      const Point out = y.values();
      double sum = 0;
      for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i];
      return sum;
    };
    EXPECT_TRUE(test::check_gradient(loss, kX, d_x.values()));
  }
}

}  // namespace
}  // namespace trireme::kernels

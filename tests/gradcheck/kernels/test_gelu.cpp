// Bias and GeLU: x, and the bias through sum_rows.
#include "kernels/gelu.hpp"

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 7, kF = 31;
const Point kX = test::uniform(kRows * kF, 1, -4, 4), kBias = test::uniform(kF, 2),
            kDy = test::uniform(kRows * kF, 3);

double loss(const Point& x, const Point& bias) {
  const Array<double> xs(x), biases(bias), y(kRows * kF);
  bias_gelu_forward<double>(Exec(), xs.cmatrix(kRows, kF), biases.cvector(),
                            y.matrix(kRows, kF));
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kF; ++i) sum += kDy[i] * out[i];
  return sum;
}

TEST(GeluGradient, OfXAndBias) {
  const Array<double> x(kX), bias(kBias), d_y(kDy), d_x(kRows * kF), d_bias(kF),
      scratch(sum_rows_scratch_elements(kF));
  bias_gelu_backward<double>(Exec(), d_y.cmatrix(kRows, kF), x.cmatrix(kRows, kF),
                             bias.cvector(), d_x.matrix(kRows, kF));
  sum_rows<double>(Exec(), d_x.cmatrix(kRows, kF), scratch.vector(), Accumulate::no,
                   d_bias.vector());
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(p, kBias); }, kX,
                                   d_x.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, p); }, kBias,
                                   d_bias.values()));
}

}  // namespace
}  // namespace trireme::kernels

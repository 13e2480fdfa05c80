// y = x W^T: input and weight; the weight's gradient is added to what is there.
#include "kernels/gemm.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 7, kIn = 33, kOut = 13;
const Point kX = test::uniform(kRows * kIn, 1), kW = test::uniform(kOut * kIn, 2),
            kDy = test::uniform(kRows * kOut, 3), kBefore = test::uniform(kOut * kIn, 4);

double loss(const Point& x, const Point& w) {
  const Array<double> xs(x), ws(w), y(kRows * kOut);
  linear_forward<double>(Exec(), xs.cmatrix(kRows, kIn),
                         WeightOperand(ws.cmatrix(kOut, kIn)), y.matrix(kRows, kOut));
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kOut; ++i) sum += kDy[i] * out[i];
  return sum;
}

TEST(LinearGradient, OfInputAndWeight) {
  const Array<double> x(kX), w(kW), d_y(kDy), d_x(kRows * kIn), d_w(kBefore);
  linear_backward_input<double>(Exec(), d_y.cmatrix(kRows, kOut),
                                WeightOperand(w.cmatrix(kOut, kIn)),
                                d_x.matrix(kRows, kIn));
  linear_backward_weight<double>(Exec(), d_y.cmatrix(kRows, kOut), x.cmatrix(kRows, kIn),
                                 Accumulate::yes, d_w.matrix(kOut, kIn));
  EXPECT_TRUE(
      test::check_gradient([](const Point& p) { return loss(p, kW); }, kX, d_x.values()));
  Point gradient = d_w.values();
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= kBefore[i];
  EXPECT_TRUE(
      test::check_gradient([](const Point& p) { return loss(kX, p); }, kW, gradient));
}

}  // namespace
}  // namespace trireme::kernels

// A linear layer with bias and GeLU: input, weight, and the bias through partial sums.
#include "kernels/gelu.hpp"

#include "kernels/gemm.hpp"
#include "kernels/reductions.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 19, kIn = 5, kF = 31;
const Point kX = test::uniform(kRows * kIn, 1, -2, 2), kW = test::uniform(kF * kIn, 4),
            kBias = test::uniform(kF, 2), kDy = test::uniform(kRows * kF, 3);

double loss(const Point& x, const Point& w, const Point& bias) {
  const Array<double> xs(x), ws(w), biases(bias), z(kRows * kF), y(kRows * kF);
  linear_forward<double>(Exec(), xs.cmatrix(kRows, kIn),
                         WeightOperand(ws.cmatrix(kF, kIn)),
                         {.bias = biases.cvector(),
                          .activation = Activation::gelu,
                          .pre_activation = z.matrix(kRows, kF)},
                         y.matrix(kRows, kF));
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kF; ++i) sum += kDy[i] * out[i];
  return sum;
}

TEST(GeluGradient, OfInputWeightAndBias) {
  const Array<double> x(kX), w(kW), bias(kBias), d_y(kDy), z(kRows * kF), y(kRows * kF),
      d_z(kRows * kF), d_x(kRows * kIn), d_w(kF * kIn), d_bias(kF),
      partials(tiled_partial_count(kRows, kF) * kF);
  const WeightOperand<double> weight(w.cmatrix(kF, kIn));
  linear_forward<double>(Exec(), x.cmatrix(kRows, kIn), weight,
                         {.bias = bias.cvector(),
                          .activation = Activation::gelu,
                          .pre_activation = z.matrix(kRows, kF)},
                         y.matrix(kRows, kF));
  gelu_backward<double>(Exec(), d_y.cmatrix(kRows, kF), z.cmatrix(kRows, kF),
                        d_z.matrix(kRows, kF),
                        partials.matrix(tiled_partial_count(kRows, kF), kF));
  linear_backward_input<double>(Exec(), d_z.cmatrix(kRows, kF), weight,
                                d_x.matrix(kRows, kIn));
  linear_backward_weight<double>(Exec(), d_z.cmatrix(kRows, kF), x.cmatrix(kRows, kIn),
                                 Accumulate::no, d_w.matrix(kF, kIn));
  add_partials<double>(Exec(), partials.cmatrix(tiled_partial_count(kRows, kF), kF),
                       Accumulate::no, d_bias.vector());
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(p, kW, kBias); }, kX,
                                   d_x.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, p, kBias); }, kW,
                                   d_w.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, kW, p); }, kBias,
                                   d_bias.values()));
}

}  // namespace
}  // namespace trireme::kernels

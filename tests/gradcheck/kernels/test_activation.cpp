// A linear layer with bias and each activation: input, weight, and the bias through
// partial sums; and a gated pair.
#include "kernels/activation.hpp"

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
constexpr test::GradientCheckOptions kStrict{.tolerance = 1e-9};

double sum_of_products(const Point& a, const Point& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double loss(Activation activation, const Point& x, const Point& w, const Point& bias) {
  const Array<double> xs(x), ws(w), biases(bias), z(kRows * kF), y(kRows * kF);
  linear_forward<double>(Exec(), xs.cmatrix(kRows, kIn),
                         WeightOperand(ws.cmatrix(kF, kIn)),
                         {.bias = biases.cvector(),
                          .activation = activation,
                          .pre_activation = z.matrix(kRows, kF)},
                         y.matrix(kRows, kF));
  return sum_of_products(kDy, y.values());
}

void check_linear(Activation activation) {
  const Array<double> x(kX), w(kW), bias(kBias), d_y(kDy), z(kRows * kF), y(kRows * kF),
      d_z(kRows * kF), d_x(kRows * kIn), d_w(kF * kIn), d_bias(kF),
      partials(tiled_partial_count(kRows, kF) * kF);
  const WeightOperand<double> weight(w.cmatrix(kF, kIn));
  linear_forward<double>(Exec(), x.cmatrix(kRows, kIn), weight,
                         {.bias = bias.cvector(),
                          .activation = activation,
                          .pre_activation = z.matrix(kRows, kF)},
                         y.matrix(kRows, kF));
  activation_backward<double>(Exec(), activation, d_y.cmatrix(kRows, kF),
                              z.cmatrix(kRows, kF), d_z.matrix(kRows, kF),
                              partials.matrix(tiled_partial_count(kRows, kF), kF));
  linear_backward_input<double>(Exec(), d_z.cmatrix(kRows, kF), weight,
                                d_x.matrix(kRows, kIn));
  linear_backward_weight<double>(Exec(), d_z.cmatrix(kRows, kF), x.cmatrix(kRows, kIn),
                                 Accumulate::no, d_w.matrix(kF, kIn));
  add_partials<double>(Exec(), partials.cmatrix(tiled_partial_count(kRows, kF), kF),
                       Accumulate::no, d_bias.vector());
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(activation, p, kW, kBias); },
                           kX, d_x.values(), kStrict));
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(activation, kX, p, kBias); },
                           kW, d_w.values(), kStrict));
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(activation, kX, kW, p); },
                           kBias, d_bias.values(), kStrict));
}

TEST(ActivationGradient, OfGeluByTanh) {
  check_linear(Activation::gelu_tanh);
}
TEST(ActivationGradient, OfGeluByErf) {
  check_linear(Activation::gelu_erf);
}
TEST(ActivationGradient, OfTanh) {
  check_linear(Activation::tanh);
}

// ReLU has no slope at 0: numbers that no step of the differences takes across it.
Point away_from_zero(Point values) {
  for (double& value : values) value += std::copysign(0.1, value);
  return values;
}

TEST(ActivationGradient, OfRelu) {
  const Point at = away_from_zero(test::uniform(kRows * kF, 5));
  const Array<double> z(at), d_y(kDy), d_z(kRows * kF);
  activation_backward<double>(Exec(), Activation::relu, d_y.cmatrix(kRows, kF),
                              z.cmatrix(kRows, kF), d_z.matrix(kRows, kF), {});
  const auto f = [](const Point& p) {
    const Array<double> zs(p), y(kRows * kF);
    activation_forward<double>(Exec(), Activation::relu, zs.cmatrix(kRows, kF),
                               y.matrix(kRows, kF));
    return sum_of_products(kDy, y.values());
  };
  EXPECT_TRUE(test::check_gradient(f, at, d_z.values(), kStrict));
}

void check_gated(Activation activation) {
  const Point at = away_from_zero(test::uniform(2 * kRows * kF, 6));
  const Array<double> z(at), d_y(kDy), d_z(2 * kRows * kF);
  gated_backward<double>(Exec(), activation, d_y.cmatrix(kRows, kF),
                         z.cmatrix(kRows, 2 * kF), d_z.matrix(kRows, 2 * kF));
  const auto f = [=](const Point& p) {
    const Array<double> zs(p), y(kRows * kF);
    gated_forward<double>(Exec(), activation, zs.cmatrix(kRows, 2 * kF),
                          y.matrix(kRows, kF));
    return sum_of_products(kDy, y.values());
  };
  EXPECT_TRUE(test::check_gradient(f, at, d_z.values(), kStrict));
}

TEST(ActivationGated, OfGeluByTanh) {
  check_gated(Activation::gelu_tanh);
}
TEST(ActivationGated, OfGeluByErf) {
  check_gated(Activation::gelu_erf);
}
TEST(ActivationGated, OfRelu) {
  check_gated(Activation::relu);
}

}  // namespace
}  // namespace trireme::kernels

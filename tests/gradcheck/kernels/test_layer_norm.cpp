// Layer norm: x (with the by-pass of the residual), gamma and beta.
#include "kernels/layer_norm.hpp"

#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 5, kH = 33;
constexpr double kEpsilon = 1e-5;

const Point kX = test::uniform(kRows * kH, 1), kGamma = test::uniform(kH, 2),
            kBeta = test::uniform(kH, 3), kDy = test::uniform(kRows * kH, 4),
            kByPass = test::uniform(kRows * kH, 5);

// sum d_y y + sum by_pass x
double loss(const Point& x, const Point& gamma, const Point& beta) {
  const Array<double> xs(x), gammas(gamma), betas(beta), y(kRows * kH), mean(kRows),
      rstd(kRows);
  layer_norm_forward<double>(Exec(), xs.cmatrix(kRows, kH), gammas.cvector(),
                             betas.cvector(), kEpsilon, y.matrix(kRows, kH),
                             mean.vector(), rstd.vector());
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i] + kByPass[i] * x[i];
  return sum;
}

TEST(LayerNormGradient, OfEverything) {
  const Array<double> x(kX), gamma(kGamma), beta(kBeta), d_y(kDy), by_pass(kByPass),
      y(kRows * kH), mean(kRows), rstd(kRows), d_x(kRows * kH), d_gamma(kH), d_beta(kH),
      scratch(layer_norm_scratch_elements(kH));
  const Exec exec;
  layer_norm_forward<double>(exec, x.cmatrix(kRows, kH), gamma.cvector(), beta.cvector(),
                             kEpsilon, y.matrix(kRows, kH), mean.vector(), rstd.vector());
  layer_norm_backward_input<double>(exec, d_y.cmatrix(kRows, kH), x.cmatrix(kRows, kH),
                                    gamma.cvector(), mean.cvector(), rstd.cvector(),
                                    by_pass.cmatrix(kRows, kH), d_x.matrix(kRows, kH));
  layer_norm_backward_weight<double>(exec, d_y.cmatrix(kRows, kH), x.cmatrix(kRows, kH),
                                     mean.cvector(), rstd.cvector(), scratch.vector(),
                                     Accumulate::no, d_gamma.vector(), d_beta.vector());
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(p, kGamma, kBeta); },
                                   kX, d_x.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, p, kBeta); },
                                   kGamma, d_gamma.values()));
  EXPECT_TRUE(test::check_gradient([](const Point& p) { return loss(kX, kGamma, p); },
                                   kBeta, d_beta.values()));
}

}  // namespace
}  // namespace trireme::kernels

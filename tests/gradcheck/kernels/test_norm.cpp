// Layer norm and RMS norm: x (with the by-pass of the residual), gamma and beta.
#include "kernels/norm.hpp"

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

constexpr test::GradientCheckOptions kStrict{.tolerance = 1e-9};

// What an RMS norm has not.
template <class View>
View of_layer_norm(NormKind kind, const View& view) {
  return kind == NormKind::layernorm ? view : View();
}

// sum d_y y + sum by_pass x
double loss(NormKind kind, const Point& x, const Point& gamma, const Point& beta) {
  const Array<double> xs(x), gammas(gamma), betas(beta), y(kRows * kH), mean(kRows),
      rstd(kRows);
  norm_forward<double>(Exec(), kind, xs.cmatrix(kRows, kH), gammas.cvector(),
                       of_layer_norm(kind, betas.cvector()), kEpsilon,
                       y.matrix(kRows, kH), of_layer_norm(kind, mean.vector()),
                       rstd.vector());
  const Point out = y.values();
  double sum = 0;
  for (index_t i = 0; i < kRows * kH; ++i) sum += kDy[i] * out[i] + kByPass[i] * x[i];
  return sum;
}

void check(NormKind kind) {
  const auto only = [&](const auto& view) { return of_layer_norm(kind, view); };
  const Array<double> x(kX), gamma(kGamma), beta(kBeta), d_y(kDy), by_pass(kByPass),
      y(kRows * kH), mean(kRows), rstd(kRows), d_x(kRows * kH), d_gamma(kH), d_beta(kH),
      scratch(norm_scratch_elements(kH));
  const Exec exec;
  norm_forward<double>(exec, kind, x.cmatrix(kRows, kH), gamma.cvector(),
                       only(beta.cvector()), kEpsilon, y.matrix(kRows, kH),
                       only(mean.vector()), rstd.vector());
  norm_backward_input<double>(exec, kind, d_y.cmatrix(kRows, kH), x.cmatrix(kRows, kH),
                              gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                              by_pass.cmatrix(kRows, kH), d_x.matrix(kRows, kH));
  norm_backward_weight<double>(exec, kind, d_y.cmatrix(kRows, kH), x.cmatrix(kRows, kH),
                               only(mean.cvector()), rstd.cvector(), scratch.vector(),
                               Accumulate::no, d_gamma.vector(), only(d_beta.vector()));
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(kind, p, kGamma, kBeta); },
                           kX, d_x.values(), kStrict));
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(kind, kX, p, kBeta); },
                           kGamma, d_gamma.values(), kStrict));
  if (kind == NormKind::rms) return;
  EXPECT_TRUE(
      test::check_gradient([=](const Point& p) { return loss(kind, kX, kGamma, p); },
                           kBeta, d_beta.values(), kStrict));
}

TEST(NormGradient, OfALayerNorm) {
  check(NormKind::layernorm);
}
TEST(NormGradient, OfAnRmsNorm) {
  check(NormKind::rms);
}

}  // namespace
}  // namespace trireme::kernels

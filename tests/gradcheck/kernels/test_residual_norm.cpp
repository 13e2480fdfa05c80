// Residual addition and norm in one pass: the gradients of all five inputs.
#include "kernels/residual_norm.hpp"

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"
#include "support/gradcheck.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Point = std::vector<double>;

constexpr index_t kRows = 6, kH = 33;
constexpr double kEpsilon = 1e-5;

struct Inputs {
  Point branch = test::uniform(kRows * kH, 1), bias = test::uniform(kH, 2),
        residual = test::uniform(kRows * kH, 3), gamma = test::uniform(kH, 4),
        beta = test::uniform(kH, 5);
};

const Point kDy = test::uniform(kRows * kH, 6), kByPass = test::uniform(kRows * kH, 7);

// The forward pass, kept for the backward pass, on a state of zeros.
struct ResidualNormPass {
  ResidualNormPass(const Inputs& in, double probability)
      : desc{.probability = probability, .batch = 2, .sequence_begin = 3, .layer = 2},
        gamma(in.gamma) {
    const Array<double> branch(in.branch), bias(in.bias), residual(in.residual),
        beta(in.beta);
    residual_norm_forward<double>(Exec(), desc, StepStateView(step.data()),
                                  branch.cmatrix(kRows, kH), bias.cvector(),
                                  residual.cmatrix(kRows, kH), gamma.cvector(),
                                  beta.cvector(), kEpsilon, x1.matrix(kRows, kH),
                                  y.matrix(kRows, kH), mean.vector(), rstd.vector());
  }
  // sum d_y y + sum by_pass x1
  double loss() const {
    const Point out = y.values(), sum = x1.values();
    double total = 0;
    for (index_t i = 0; i < kRows * kH; ++i)
      total += kDy[i] * out[i] + kByPass[i] * sum[i];
    return total;
  }

  DropoutDesc desc;
  Kokkos::View<StepState, DeviceMemory> step{"step"};
  Array<double> gamma;
  Array<double> x1{Point(kRows * kH)}, y{Point(kRows * kH)}, mean{Point(kRows)},
      rstd{Point(kRows)};
};

void check(double probability) {
  const Inputs at;
  const ResidualNormPass pass(at, probability);
  const index_t blocks = partial_count(kRows, kH);
  const bool drops = probability > 0;
  const Array<double> d_y(kDy), by_pass(kByPass), d_x1(kRows * kH), d_branch(kRows * kH);
  const Array<double> partials[3] = {
      Array<double>(blocks * kH), Array<double>(blocks * kH), Array<double>(blocks * kH)};
  residual_norm_backward<double>(
      Exec(), pass.desc, StepStateView(pass.step.data()), d_y.cmatrix(kRows, kH),
      pass.x1.cmatrix(kRows, kH), pass.gamma.cvector(), pass.mean.cvector(),
      pass.rstd.cvector(), by_pass.cmatrix(kRows, kH), d_x1.matrix(kRows, kH),
      drops ? d_branch.matrix(kRows, kH) : View2<double>(),
      {partials[0].matrix(blocks, kH), partials[1].matrix(blocks, kH)},
      partials[2].matrix(blocks, kH));

  const auto sums = [&](int i) {
    const Array<double> sum(kH);
    add_partials<double>(Exec(), partials[i].cmatrix(blocks, kH), Accumulate::no,
                         sum.vector());
    return sum.values();
  };
  const auto with = [&](Point Inputs::*input) {
    return [=](const Point& p) {
      Inputs moved = at;
      moved.*input = p;
      return ResidualNormPass(moved, probability).loss();
    };
  };
  EXPECT_TRUE(test::check_gradient(with(&Inputs::gamma), at.gamma, sums(0)));
  EXPECT_TRUE(test::check_gradient(with(&Inputs::beta), at.beta, sums(1)));
  EXPECT_TRUE(test::check_gradient(with(&Inputs::bias), at.bias, sums(2)));
  EXPECT_TRUE(test::check_gradient(with(&Inputs::residual), at.residual, d_x1.values()));
  EXPECT_TRUE(test::check_gradient(with(&Inputs::branch), at.branch,
                                   drops ? d_branch.values() : d_x1.values()));
}

TEST(ResidualNormGradient, OfEverything) {
  check(0.4);
}
TEST(ResidualNormGradient, OfEverythingWithNothingDropped) {
  check(0.0);
}

}  // namespace
}  // namespace trireme::kernels

// Residual addition and norm in one pass: the gradients of all five inputs, of pre-norm
// and post-norm.
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

constexpr test::GradientCheckOptions kStrict{.tolerance = 1e-9};

// A norm and a bias; what the sum's or y's second gradient is.
struct Form {
  NormKind kind = NormKind::layernorm;
  bool has_bias = true, is_post_norm = false;

  bool is_layer_norm() const { return kind == NormKind::layernorm; }
  template <class View>
  View of_layer_norm(const View& view) const {
    return is_layer_norm() ? view : View();
  }
};

// The forward pass, kept for the backward pass, on a state of zeros.
struct ResidualNormPass {
  ResidualNormPass(const Form& form_in, const Inputs& in, double probability)
      : form(form_in),
        desc{.probability = probability, .batch = 2, .sequence_begin = 3, .layer = 2},
        gamma(in.gamma) {
    const Array<double> branch(in.branch), bias(in.bias), residual(in.residual),
        beta(in.beta);
    residual_norm_forward<double>(
        Exec(), form.kind, desc, StepStateView(step.data()), branch.cmatrix(kRows, kH),
        form.has_bias ? bias.cvector() : View1<const double>(),
        residual.cmatrix(kRows, kH), gamma.cvector(), form.of_layer_norm(beta.cvector()),
        kEpsilon, x1.matrix(kRows, kH), y.matrix(kRows, kH),
        form.of_layer_norm(mean.vector()), rstd.vector());
  }
  // sum d_y y + sum by_pass x1; of post-norm, sum (d_y + by_pass) y
  double loss() const {
    const Point out = y.values(), sum = form.is_post_norm ? out : x1.values();
    double total = 0;
    for (index_t i = 0; i < kRows * kH; ++i)
      total += kDy[i] * out[i] + kByPass[i] * sum[i];
    return total;
  }

  Form form;
  DropoutDesc desc;
  Kokkos::View<StepState, DeviceMemory> step{"step"};
  Array<double> gamma;
  Array<double> x1{Point(kRows * kH)}, y{Point(kRows * kH)}, mean{Point(kRows)},
      rstd{Point(kRows)};
};

void check(const Form& form, double probability) {
  const Inputs at;
  const ResidualNormPass pass(form, at, probability);
  const index_t blocks = partial_count(kRows, kH);
  const bool drops = probability > 0;
  const Array<double> d_y(kDy), by_pass(kByPass), d_x1(kRows * kH), d_branch(kRows * kH);
  const Array<double> partials[3] = {
      Array<double>(blocks * kH), Array<double>(blocks * kH), Array<double>(blocks * kH)};
  const View2<const double> null;
  residual_norm_backward<double>(
      Exec(), form.kind, pass.desc, StepStateView(pass.step.data()),
      d_y.cmatrix(kRows, kH), pass.x1.cmatrix(kRows, kH), pass.gamma.cvector(),
      form.of_layer_norm(pass.mean.cvector()), pass.rstd.cvector(),
      form.is_post_norm ? null : by_pass.cmatrix(kRows, kH), d_x1.matrix(kRows, kH),
      drops ? d_branch.matrix(kRows, kH) : View2<double>(),
      {partials[0].matrix(blocks, kH),
       form.of_layer_norm(partials[1].matrix(blocks, kH))},
      form.has_bias ? partials[2].matrix(blocks, kH) : View2<double>(),
      form.is_post_norm ? by_pass.cmatrix(kRows, kH) : null);

  const auto sums = [&](int i) {
    const Array<double> sum(kH);
    add_partials<double>(Exec(), partials[i].cmatrix(blocks, kH), Accumulate::no,
                         sum.vector());
    return sum.values();
  };
  const auto expect = [&](Point Inputs::*input, const Point& gradient) {
    const auto f = [=](const Point& p) {
      Inputs moved = at;
      moved.*input = p;
      return ResidualNormPass(form, moved, probability).loss();
    };
    EXPECT_TRUE(test::check_gradient(f, at.*input, gradient, kStrict));
  };
  expect(&Inputs::gamma, sums(0));
  if (form.is_layer_norm()) expect(&Inputs::beta, sums(1));
  if (form.has_bias) expect(&Inputs::bias, sums(2));
  expect(&Inputs::residual, d_x1.values());
  expect(&Inputs::branch, drops ? d_branch.values() : d_x1.values());
}

void check(const Form& form) {
  for (const double probability : {0.4, 0.0}) {
    SCOPED_TRACE(probability);
    check(form, probability);
  }
}

TEST(ResidualNormGradient, OfALayerNorm) {
  check(Form{});
}
TEST(ResidualNormGradient, OfAPostNorm) {
  check({.is_post_norm = true});
}
TEST(ResidualNormGradient, OfALayerNormWithoutBias) {
  check({.has_bias = false});
}
TEST(ResidualNormGradient, OfAnRmsNorm) {
  check({.kind = NormKind::rms});
}
TEST(ResidualNormGradient, OfAnRmsNormWithoutBias) {
  check({.kind = NormKind::rms, .has_bias = false});
}

}  // namespace
}  // namespace trireme::kernels

// Residual addition and norm in one pass, against the separate kernels, to the bit; those
// have references of their own in double.
#include "kernels/residual_norm.hpp"

#include "kernels/impl/residual_norm_reference.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

constexpr double kResidualNormEpsilon = 1e-5;
using Bytes = std::vector<unsigned char>;

// Inputs of one shape, and the outputs of both ways as bytes.
template <class T>
class ResidualNormCase {
 public:
  using A = Accumulator<T>;

  ResidualNormCase(index_t rows_in, index_t h_in, double probability, index_t batch = 1)
      : rows(rows_in),
        h(h_in),
        desc{.probability = probability,
             .batch = batch,
             .sequence_begin = 3,
             .layer = 5,
             .site = random::Site::attention_output},
        branch(test::uniform(rows * h, 1)),
        bias(test::uniform(h, 2)),
        residual(test::uniform(rows * h, 3)),
        gamma(test::uniform(h, 4, 0.5, 1.5)),
        beta(test::uniform(h, 5)),
        d_y(test::uniform(rows * h, 6)),
        d_residual(test::uniform(rows * h, 7)),
        x1(rows * h, -1.0),
        y(rows * h, -1.0),
        mean(rows, -1.0),
        rstd(rows, -1.0) {
    StepState state;
    state.seed = 17;
    state.sample_base = 40;
    Kokkos::deep_copy(state_, state);
  }

  StepStateView step() const { return StepStateView(state_.data()); }
  View2<T> matrix(const Array<T>& array) const { return array.matrix(rows, h); }

  std::vector<Bytes> forward(const Exec& exec, const Array<T>& to_x1,
                             const Array<T>& from_branch,
                             const Array<T>& from_residual) const {
    residual_norm_forward<T>(exec, desc, step(), matrix(from_branch), bias.cvector(),
                             matrix(from_residual), gamma.cvector(), beta.cvector(),
                             kResidualNormEpsilon, matrix(to_x1), matrix(y),
                             mean.vector(), rstd.vector());
    exec.fence("test");
    return {to_x1.bytes(), y.bytes(), mean.bytes(), rstd.bytes()};
  }
  std::vector<Bytes> forward(const Exec& exec = Exec()) const {
    return forward(exec, x1, branch, residual);
  }
  std::vector<Bytes> forward_reference() const {
    residual_norm_forward_reference<T>(Exec(), desc, step(), matrix(branch),
                                       bias.cvector(), matrix(residual), gamma.cvector(),
                                       beta.cvector(), kResidualNormEpsilon, matrix(x1),
                                       matrix(y), mean.vector(), rstd.vector());
    return {x1.bytes(), y.bytes(), mean.bytes(), rstd.bytes()};
  }

  // d_x1 is written to `to`; the sums are added to what is there.
  std::vector<Bytes> backward(const Exec& exec, const Array<T>& to,
                              const Array<T>& from_y, const Array<T>& by_pass) const {
    const bool drops = desc.probability > 0;
    const index_t blocks = partial_count(rows);
    const Array<T> d_branch(drops ? rows * h : 0, -1.0);
    const Array<A> gammas(blocks * h, 1e30), betas(blocks * h, 1e30),
        biases(blocks * h, 1e30);
    residual_norm_backward<T>(
        exec, desc, step(), matrix(from_y), matrix(x1), gamma.cvector(), mean.cvector(),
        rstd.cvector(), matrix(by_pass), matrix(to),
        drops ? matrix(d_branch) : View2<T>(),
        {gammas.matrix(blocks, h), betas.matrix(blocks, h)}, biases.matrix(blocks, h));
    std::vector<Bytes> bytes;
    for (const Array<A>* partials : {&gammas, &betas, &biases}) {
      const Array<A> sums(test::uniform(h, 8));
      add_partials<A>(exec, partials->cmatrix(blocks, h), Accumulate::yes, sums.vector());
      exec.fence("test");
      bytes.push_back(sums.bytes());
    }
    bytes.push_back(to.bytes());
    bytes.push_back(drops ? d_branch.bytes() : to.bytes());
    return bytes;
  }
  std::vector<Bytes> backward(const Exec& exec = Exec()) const {
    return backward(exec, Array<T>(rows * h, -1.0), d_y, d_residual);
  }
  std::vector<Bytes> backward_reference() const {
    const Array<T> d_x1(rows * h, -1.0), d_branch(rows * h, -1.0);
    const Array<A> scratch(layer_norm_scratch_elements(h), 1e30);
    const Array<A> sums[3] = {Array<A>(test::uniform(h, 8)),
                              Array<A>(test::uniform(h, 8)),
                              Array<A>(test::uniform(h, 8))};
    residual_norm_backward_reference<T>(
        Exec(), desc, step(), matrix(d_y), matrix(x1), gamma.cvector(), mean.cvector(),
        rstd.cvector(), matrix(d_residual), matrix(d_x1), matrix(d_branch),
        scratch.vector(), sums[0].vector(), sums[1].vector(), sums[2].vector());
    return {sums[0].bytes(), sums[1].bytes(), sums[2].bytes(), d_x1.bytes(),
            d_branch.bytes()};
  }

  const index_t rows, h;
  const DropoutDesc desc;
  const Array<T> branch, bias, residual, gamma, beta, d_y, d_residual;
  const Array<T> x1, y;
  const Array<A> mean, rstd;

 private:
  Kokkos::View<StepState, DeviceMemory> state_{"state"};
};

template <class T>
class ResidualNormOf : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualNormOf, test::RealTypes);

// A GPU's threads have whole pieces of 8, 16, ... 64 columns, of some in registers; 1100
// are more than the words that are drawn at once; of 2000 rows there are as many blocks
// as there can be, and of unequal size.
TYPED_TEST(ResidualNormOf, BitsOfTheSeparateKernels) {
  if constexpr (!kHostExecution) {
    GTEST_SKIP() << "nvcc contracts products and sums as it likes in each kernel";
  }
  for (const double probability : {0.0, 0.3}) {
    for (const auto& [rows, h] : {std::pair{1, 1},
                                  {1, 257},
                                  {31, 33},
                                  {33, 31},
                                  {33, 1},
                                  {257, 257},
                                  {31, 8},
                                  {31, 16},
                                  {18, 24},
                                  {33, 32},
                                  {21, 40},
                                  {19, 64},
                                  {31, 1100},
                                  {2000, 17}}) {
      SCOPED_TRACE(::testing::Message() << rows << " x " << h << ", " << probability);
      const ResidualNormCase<TypeParam> of(rows, h, probability);
      const auto want_forward = of.forward_reference();
      EXPECT_EQ(of.forward(), want_forward);
      const auto want = of.backward_reference(), got = of.backward();
      const char* const names[] = {"d_gamma", "d_beta", "d_bias", "d_x1", "d_branch"};
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(got[i], want[i]) << names[i];
    }
  }
}

TYPED_TEST(ResidualNormOf, InPlace) {
  for (const double probability : {0.0, 0.3}) {
    const ResidualNormCase<TypeParam> of(66, 97, probability, 2);
    const auto want = of.forward();
    const Array<TypeParam> over_branch(of.branch.values());
    EXPECT_EQ(of.forward(Exec(), over_branch, over_branch, of.residual), want);
    const Array<TypeParam> over_residual(of.residual.values());
    EXPECT_EQ(of.forward(Exec(), over_residual, of.branch, over_residual), want);

    const auto gradients = of.backward();
    const Array<TypeParam> over_by_pass(of.d_residual.values());
    EXPECT_EQ(of.backward(Exec(), over_by_pass, of.d_y, over_by_pass), gradients);
    const Array<TypeParam> over_d_y(of.d_y.values());
    EXPECT_EQ(of.backward(Exec(), over_d_y, over_d_y, of.d_residual), gradients);
  }
}

TYPED_TEST(ResidualNormOf, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const ResidualNormCase<TypeParam> of(257, 333, 0.1);
  const auto forward = of.forward();
  const auto backward = of.backward();
  EXPECT_EQ(of.forward(one.exec), forward);
  EXPECT_EQ(of.backward(one.exec), backward);
}

TEST(ResidualNormShapes, WrongShapesAreRefused) {
  const ResidualNormCase<float> of(4, 3, 0.1);
  const Array<float> sums(partial_count(4) * 3);
  const auto partials = sums.matrix(partial_count(4), 3);
  const auto backward = [&](const View2<float>& d_branch, const View2<float>& bias) {
    residual_norm_backward<float>(Exec(), of.desc, of.step(), of.matrix(of.d_y),
                                  of.matrix(of.x1), of.gamma.cvector(), of.mean.cvector(),
                                  of.rstd.cvector(), of.matrix(of.d_residual),
                                  of.matrix(of.y), d_branch, {partials, partials}, bias);
  };
  try {
    backward({}, partials);
    FAIL() << "a mask, and nowhere to put what passes it";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("d_branch is (0, 0), expected (4, 3)"),
              std::string::npos)
        << error.what();
  }
  EXPECT_THROW(backward(of.matrix(of.branch), {}), std::exception);
}

}  // namespace
}  // namespace trireme::kernels

// Residual addition and norm in one pass, against the separate kernels, to the bit
// (nearly on a GPU); those have references of their own in double.
#include "kernels/residual_norm.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <span>

#include "kernels/impl/residual_norm_reference.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

constexpr double kResidualNormEpsilon = 1e-5;

// A norm, and whether the branch has a bias; a post-norm, which nothing by-passes, or
// with a second gradient of y.
enum class Gradients { by_pass, one, two };
struct Form {
  NormKind kind = NormKind::layernorm;
  bool has_bias = true;
  Gradients gradients = Gradients::by_pass;

  bool is_layer_norm() const { return kind == NormKind::layernorm; }
};
constexpr Form kForms[] = {{},
                           {NormKind::layernorm, false},
                           {NormKind::rms, true},
                           {NormKind::rms, false},
                           {NormKind::layernorm, true, Gradients::one},
                           {NormKind::layernorm, true, Gradients::two}};

// What an array holds. It is another's if all bits are.
struct Output {
  std::vector<unsigned char> bytes;
  std::vector<double> values;

  friend bool operator==(const Output& a, const Output& b) { return a.bytes == b.bytes; }
};
template <class T>
Output output_of(const Array<T>& array) {
  return {array.bytes(), array.values()};
}

// Inputs of one shape, and the outputs of both ways.
template <class T>
class ResidualNormCase {
 public:
  using A = Accumulator<T>;

  ResidualNormCase(index_t rows_in, index_t h_in, double probability, index_t batch = 1,
                   const Form& form_in = {})
      : form(form_in),
        rows(rows_in),
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
        d_y2(test::uniform(rows * h, 9)),
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
  // Null Views stand for what the form has not.
  template <class View>
  View of_layer_norm(const View& view) const {
    return form.is_layer_norm() ? view : View();
  }
  View1<const T> bias_view() const {
    return form.has_bias ? bias.cvector() : View1<const T>();
  }

  std::vector<Output> forward(const Exec& exec, const Array<T>& to_x1,
                              const Array<T>& from_branch,
                              const Array<T>& from_residual) const {
    residual_norm_forward<T>(exec, form.kind, desc, step(), matrix(from_branch),
                             bias_view(), matrix(from_residual), gamma.cvector(),
                             of_layer_norm(beta.cvector()), kResidualNormEpsilon,
                             matrix(to_x1), matrix(y), of_layer_norm(mean.vector()),
                             rstd.vector());
    exec.fence("test");
    return {output_of(to_x1), output_of(y), output_of(mean), output_of(rstd)};
  }
  std::vector<Output> forward(const Exec& exec = Exec()) const {
    return forward(exec, x1, branch, residual);
  }
  std::vector<Output> forward_reference() const {
    residual_norm_forward_reference<T>(
        Exec(), form.kind, desc, step(), matrix(branch), bias_view(), matrix(residual),
        gamma.cvector(), of_layer_norm(beta.cvector()), kResidualNormEpsilon, matrix(x1),
        matrix(y), of_layer_norm(mean.vector()), rstd.vector());
    return {output_of(x1), output_of(y), output_of(mean), output_of(rstd)};
  }

  // d_x1 is written to `to`; the sums are added to what is there. `beside` is the
  // gradient that by-passes the norm, or the second one of y.
  std::vector<Output> backward(const Exec& exec, const Array<T>& to,
                               const Array<T>& from_y, const Array<T>& beside) const {
    const bool drops = desc.probability > 0;
    const index_t blocks = partial_count(rows, h);
    const Array<T> d_branch(drops ? rows * h : 0, -1.0);
    const Array<A> gammas(blocks * h, 1e30), betas(blocks * h, 1e30),
        biases(blocks * h, 1e30);
    const View2<const T> null;
    residual_norm_backward<T>(
        exec, form.kind, desc, step(), matrix(from_y), matrix(x1), gamma.cvector(),
        of_layer_norm(mean.cvector()), rstd.cvector(),
        form.gradients == Gradients::by_pass ? matrix(beside) : null, matrix(to),
        drops ? matrix(d_branch) : View2<T>(),
        {gammas.matrix(blocks, h), of_layer_norm(betas.matrix(blocks, h))},
        form.has_bias ? biases.matrix(blocks, h) : View2<A>(),
        form.gradients == Gradients::two ? matrix(beside) : null);
    std::vector<Output> outputs;
    const bool has_sums[3] = {true, form.is_layer_norm(), form.has_bias};
    const Array<A>* const all[3] = {&gammas, &betas, &biases};
    for (int i = 0; i < 3; ++i) {
      const Array<A> sums(test::uniform(h, 8));
      if (has_sums[i]) {
        add_partials<A>(exec, all[i]->cmatrix(blocks, h), Accumulate::yes, sums.vector());
      }
      exec.fence("test");
      outputs.push_back(output_of(sums));
    }
    outputs.push_back(output_of(to));
    outputs.push_back(output_of(drops ? d_branch : to));
    return outputs;
  }
  const Array<T>& beside() const {
    return form.gradients == Gradients::two ? d_y2 : d_residual;
  }
  std::vector<Output> backward(const Exec& exec = Exec()) const {
    return backward(exec, Array<T>(rows * h, -1.0), d_y, beside());
  }
  std::vector<Output> backward_reference() const {
    const Array<T> d_x1(rows * h, -1.0), d_branch(rows * h, -1.0), both(d_y.values());
    if (form.gradients == Gradients::two) {
      bias_dropout_add_forward<T>(Exec(), {}, step(), matrix(d_y), {}, matrix(d_y2),
                                  matrix(both));
    }
    const Array<A> scratch(norm_scratch_elements(h), 1e30);
    const Array<A> sums[3] = {Array<A>(test::uniform(h, 8)),
                              Array<A>(test::uniform(h, 8)),
                              Array<A>(test::uniform(h, 8))};
    residual_norm_backward_reference<T>(
        Exec(), form.kind, desc, step(), matrix(both), matrix(x1), gamma.cvector(),
        of_layer_norm(mean.cvector()), rstd.cvector(),
        form.gradients == Gradients::by_pass ? matrix(d_residual) : View2<const T>(),
        matrix(d_x1), matrix(d_branch), scratch.vector(), sums[0].vector(),
        of_layer_norm(sums[1].vector()), form.has_bias ? sums[2].vector() : View1<A>());
    return {output_of(sums[0]), output_of(sums[1]), output_of(sums[2]), output_of(d_x1),
            output_of(d_branch)};
  }

  const Form form;
  const index_t rows, h;
  const DropoutDesc desc;
  const Array<T> branch, bias, residual, gamma, beta, d_y, d_residual, d_y2;
  const Array<T> x1, y;
  const Array<A> mean, rstd;

 private:
  Kokkos::View<StepState, DeviceMemory> state_{"state"};
};

template <class T>
class ResidualNormOf : public ::testing::Test {};
TYPED_TEST_SUITE(ResidualNormOf, test::RealTypes);

// The same bits; on a GPU, where nvcc contracts products and sums as it likes in each
// kernel, nearly.
void expect_same(const Output& got, const Output& want, double relative, double scale,
                 const char* what) {
  if (kHostExecution) {
    EXPECT_EQ(got.bytes, want.bytes) << what;
  } else {
    test::expect_close(got.values, want.values, relative, scale, what);
  }
}

// All outputs. Now and then a contraction rounds one of x1 and d_x1 to another neighbour:
// a few such steps in a row's statistics, or in a column's sum for the bias, are no
// fault.
template <class T>
void expect_same_forward(const ResidualNormCase<T>& of, const std::vector<Output>& got,
                         const std::vector<Output>& want) {
  const double u = test::rounding<T>(), ua = test::rounding<Accumulator<T>>();
  const double steps = 4 * u / ua / static_cast<double>(of.h);
  expect_same(got[0], want[0], 16 * u, 4, "x1");
  expect_same(got[1], want[1], 16 * u, 4, "y");
  expect_same(got[2], want[2], 16 * ua, 4 + steps, "mean");
  expect_same(got[3], want[3], 16 * ua, 4 + steps, "rstd");
}
template <class T>
void expect_same_backward(const ResidualNormCase<T>& of, const std::vector<Output>& got,
                          const std::vector<Output>& want) {
  const double u = test::rounding<T>(), ua = test::rounding<Accumulator<T>>();
  // Of a single column, what rounding leaves in d_x1 is multiplied by 1 / sqrt(epsilon).
  const double alone = of.h == 1 ? 1000 : 0;
  const double of_rows = 4 + alone * ua / u;
  const double of_sums = 4 + static_cast<double>(of.rows) / 8;
  expect_same(got[0], want[0], 16 * ua, of_sums, "d_gamma");
  expect_same(got[1], want[1], 16 * ua, of_sums, "d_beta");
  expect_same(got[2], want[2], 16 * ua, of_sums + 4 * u / ua + alone, "d_bias");
  expect_same(got[3], want[3], 16 * u, of_rows, "d_x1");
  expect_same(got[4], want[4], 16 * u, of_rows, "d_branch");
}

template <class T>
void expect_bits_of_separate_kernels(const Form& form, index_t rows, index_t h) {
  for (const double probability : {0.0, 0.3}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << h << ", " << probability
                                      << ", form " << &form - kForms);
    const ResidualNormCase<T> of(rows, h, probability, 1, form);
    const auto want_forward = of.forward_reference();
    expect_same_forward(of, of.forward(), want_forward);
    const auto want_backward = of.backward_reference();
    expect_same_backward(of, of.backward(), want_backward);
  }
}

// A GPU's threads have whole pieces of 8, 16, ... 64 columns, of some in registers; 1100
// are more than the words that are drawn at once; of 2000 rows there are as many blocks
// as there can be, and of unequal size. From 264 columns on a row has several warps,
// whose threads hold one piece or more, all of them or some; the longest rows are not
// held.
TYPED_TEST(ResidualNormOf, BitsOfTheSeparateKernels) {
  for (const auto& [rows, h] :
       {std::pair{1, 1}, {1, 257},   {31, 33},  {33, 31},  {33, 1},   {257, 257},
        {31, 8},         {31, 16},   {18, 24},  {33, 32},  {21, 40},  {19, 64},
        {31, 1100},      {2000, 17}, {33, 264}, {21, 520}, {7, 1000}, {19, 776},
        {5, 1032},       {9, 4096},  {6, 4104}, {3, 8200}, {2, 16392}}) {
    expect_bits_of_separate_kernels<TypeParam>(kForms[0], rows, h);
  }
}
// The same of other norms, without bias, and of post-norm.
TYPED_TEST(ResidualNormOf, BitsOfTheSeparateKernelsInEveryForm) {
  for (const Form& form : std::span(kForms).subspan(1)) {
    for (const auto& [rows, h] : {std::pair{1, 1},
                                  {31, 33},
                                  {31, 16},
                                  {2000, 17},
                                  {33, 264},
                                  {19, 776},
                                  {9, 4096},
                                  {3, 8200}}) {
      expect_bits_of_separate_kernels<TypeParam>(form, rows, h);
    }
  }
}

template <class T>
void expect_same_in_place(index_t h, double probability, const Form& form) {
  SCOPED_TRACE(::testing::Message()
               << "66 x " << h << ", " << probability << ", form " << &form - kForms);
  const ResidualNormCase<T> of(66, h, probability, 2, form);
  const auto want = of.forward();
  const Array<T> over_branch(of.branch.values());
  EXPECT_EQ(of.forward(Exec(), over_branch, over_branch, of.residual), want);
  const Array<T> over_residual(of.residual.values());
  EXPECT_EQ(of.forward(Exec(), over_residual, of.branch, over_residual), want);

  const auto gradients = of.backward();
  const Array<T> over_by_pass(of.beside().values());
  EXPECT_EQ(of.backward(Exec(), over_by_pass, of.d_y, over_by_pass), gradients);
  const Array<T> over_d_y(of.d_y.values());
  EXPECT_EQ(of.backward(Exec(), over_d_y, over_d_y, of.beside()), gradients);
}
// By columns, by a warp that holds a row, and by some that do.
TYPED_TEST(ResidualNormOf, InPlace) {
  for (const double probability : {0.0, 0.3}) {
    for (const index_t h : {97, 16, 776}) {
      for (const Form& form : kForms) {
        expect_same_in_place<TypeParam>(h, probability, form);
      }
    }
  }
}

TYPED_TEST(ResidualNormOf, BitsDoNotDependOnThreads) {
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  for (const Form& form : kForms) {
    const ResidualNormCase<TypeParam> of(257, 333, 0.1, 1, form);
    const auto forward = of.forward();
    const auto backward = of.backward();
    EXPECT_EQ(of.forward(one.exec), forward);
    EXPECT_EQ(of.backward(one.exec), backward);
  }
}

// Of no rows nothing is read, and the sums of their only block are zero.
TYPED_TEST(ResidualNormOf, GradientsOfNoRows) {
  using T = TypeParam;
  using A = Accumulator<T>;
  ASSERT_EQ(partial_count(0, 8), 1);
  for (const index_t h : {8, 3}) {
    for (const double probability : {0.0, 0.3}) {
      SCOPED_TRACE(::testing::Message() << "0 x " << h << ", " << probability);
      const ResidualNormCase<T> of(0, h, probability);
      const View2<const T> none(nullptr, 0, h);
      const View2<T> nowhere(nullptr, 0, h);
      const View1<const A> of_no_rows(nullptr, 0);
      const Array<A> gammas(h, 1e30), betas(h, 1e30), biases(h, 1e30);
      residual_norm_backward<T>(
          Exec(), NormKind::layernorm, of.desc, of.step(), none, none, of.gamma.cvector(),
          of_no_rows, of_no_rows, none, nowhere, probability > 0 ? nowhere : View2<T>(),
          {gammas.matrix(1, h), betas.matrix(1, h)}, biases.matrix(1, h));
      for (const Array<A>* sums : {&gammas, &betas, &biases}) {
        EXPECT_EQ(sums->values(), std::vector<double>(h, 0.0));
      }
    }
  }
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(ResidualNormShapes, WrongShapesAreRefused) {
  const ResidualNormCase<float> of(4, 3, 0.1);
  const Array<float> sums(partial_count(4, 3) * 3);
  const auto partials = sums.matrix(partial_count(4, 3), 3);
  const auto backward = [&](const View2<float>& d_branch,
                            const View2<const float>& by_pass, const View2<float>& bias,
                            const View2<const float>& second) {
    return text_of([&] {
      residual_norm_backward<float>(
          Exec(), NormKind::layernorm, of.desc, of.step(), of.matrix(of.d_y),
          of.matrix(of.x1), of.gamma.cvector(), of.mean.cvector(), of.rstd.cvector(),
          by_pass, of.matrix(of.y), d_branch, {partials, partials}, bias, second);
    });
  };
  const auto whole = of.matrix(of.branch), by_pass = of.matrix(of.d_residual);
  EXPECT_THAT(backward({}, by_pass, partials, {}),
              ::testing::HasSubstr("d_branch is (0, 0), expected (4, 3)"));
  EXPECT_THAT(
      backward(whole, {}, {}, {}),
      ::testing::HasSubstr("without d_residual it is of a layer norm with a bias"));
  EXPECT_THAT(backward(whole, by_pass, partials, of.matrix(of.d_y2)),
              ::testing::HasSubstr("of d_residual and d_y2 there is one at most"));
}

}  // namespace
}  // namespace trireme::kernels

// Matrix products: the library behind gemm() and the plain kernel beside it, each against
// a triple loop in long double; every transposition, odd and empty shapes, rows with
// gaps.
#include "kernels/gemm.hpp"

#include <gmock/gmock.h>

#include <array>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/epilogue.hpp"
#include "kernels/gemm_reference.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;
using Values = std::vector<double>;

constexpr Transpose kTransposes[] = {Transpose::no, Transpose::yes};
constexpr Accumulate kAccumulates[] = {Accumulate::no, Accumulate::yes};

// A matrix stored with `gap` more columns than it has; the gap holds NaN on the way in
// and must hold it on the way out.
template <class T>
class Matrix {
 public:
  Matrix(index_t rows, index_t columns, index_t gap, const Values& values)
      : rows_(rows), columns_(columns), width_(columns + gap), data_(padded(values)) {}

  View2<T> view() const {
    const View2<T> whole(data_.vector().data(), rows_, width_);
    return Kokkos::subview(whole, Kokkos::ALL, std::pair<index_t, index_t>(0, columns_));
  }
  View2<const T> cview() const { return view(); }
  Values values() const {
    const Values all = data_.values();
    Values inside;
    for (index_t i = 0; i < rows_; ++i) {
      for (index_t j = 0; j < width_; ++j) {
        if (j < columns_) {
          inside.push_back(all[i * width_ + j]);
        } else {
          EXPECT_TRUE(std::isnan(all[i * width_ + j])) << "gap of row " << i;
        }
      }
    }
    return inside;
  }
  std::vector<unsigned char> bytes() const { return data_.bytes(); }

 private:
  Values padded(const Values& values) const {
    Values all(rows_ * width_, NAN);
    for (index_t i = 0; i < rows_; ++i) {
      for (index_t j = 0; j < columns_; ++j) {
        all[i * width_ + j] = values[i * columns_ + j];
      }
    }
    return all;
  }

  index_t rows_, columns_, width_;
  Array<T> data_;
};

struct Size {
  index_t m, n, k;
};

Values random_values(index_t count, unsigned seed) {
  return test::uniform(static_cast<std::size_t>(count), seed, -1, 1);
}

// One product with everything that varies; operands are stored as the transpositions say.
template <class T, class To>
struct Problem {
  Size size;
  Transpose ta, tb;
  Accumulate accumulate;
  Matrix<T> a, b;
  Values before;
  index_t gap;

  Problem(Size s, Transpose ta_, Transpose tb_, Accumulate add, index_t gap_,
          const Values& a_values, const Values& b_values)
      : size(s),
        ta(ta_),
        tb(tb_),
        accumulate(add),
        a(ta == Transpose::yes ? s.k : s.m, ta == Transpose::yes ? s.m : s.k, gap_,
          a_values),
        b(tb == Transpose::yes ? s.n : s.k, tb == Transpose::yes ? s.k : s.n, 2 * gap_,
          b_values),
        // Where C is overwritten, what was there must not matter: 0 * NaN is NaN.
        before(add == Accumulate::yes ? Array<To>(random_values(s.m * s.n, 3)).values()
                                      : Values(s.m * s.n, NAN)),
        gap(gap_) {}
  Problem(Size s, Transpose ta_, Transpose tb_, Accumulate add, index_t gap_)
      : Problem(s, ta_, tb_, add, gap_, random_values(s.m * s.k, 1),
                random_values(s.k * s.n, 2)) {}

  template <class Function>
  Matrix<To> run(const Function& function, const Exec& exec = Exec()) const {
    Matrix<To> c(size.m, size.n, 3 * gap, before);
    function(exec, ta, tb, accumulate, a.cview(), b.cview(), c.view());
    return c;
  }
  Matrix<To> fast() const { return run(gemm<T, To>); }
  Matrix<To> plain() const { return run(gemm_reference<T, To>); }

  // Each element within the error bound of a sum of k products in Accumulator<T>,
  // whatever its order, rounded to To. A GPU's library may round the product to To
  // before it adds what was there. `stride` > 1 looks at a part of them.
  void expect_right(const Values& got, const char* what, index_t stride = 1) const {
    const Values left = a.values(), right = b.values();
    const double u = test::rounding<Accumulator<T>>(), u_out = test::rounding<To>();
    const bool may_round_twice = !kHostExecution && accumulate == Accumulate::yes;
    for (index_t index = 0; index < size.m * size.n; index += stride) {
      const index_t i = index / size.n, j = index % size.n;
      long double sum = accumulate == Accumulate::yes ? before[index] : 0.0;
      long double size_of_terms = std::abs(sum);
      for (index_t p = 0; p < size.k; ++p) {
        const long double x =
            left[ta == Transpose::yes ? p * size.m + i : i * size.k + p];
        const long double y =
            right[tb == Transpose::yes ? j * size.k + p : p * size.n + j];
        sum += x * y;
        size_of_terms += std::abs(x * y);
      }
      const double want = static_cast<double>(sum);
      const double product = may_round_twice ? want - before[index] : 0.0;
      const double bound =
          (static_cast<double>(size.k) + 2) * u * static_cast<double>(size_of_terms) +
          u_out * 1.01 * (std::abs(want) + std::abs(product)) + 0x1p-25 * u_out;
      if (!(std::abs(got[index] - want) <= bound)) {
        ADD_FAILURE() << what << "(" << i << ", " << j << ") is " << got[index]
                      << ", expected " << want << " within " << bound;
        return;
      }
    }
  }
};

template <class A, class C>
struct Pair {
  using T = A;
  using To = C;
};
using Pairs = ::testing::Types<Pair<float, float>, Pair<double, double>, Pair<bf16, bf16>,
                               Pair<bf16, float>, Pair<fp16, fp16>, Pair<fp16, float>>;
template <class P>
class GemmOf : public ::testing::Test {
 protected:
  using T = typename P::T;
  using To = typename P::To;

  template <class Body>
  static void for_each_problem(const std::vector<Size>& sizes, const Body& body) {
    for (const Size s : sizes) {
      for (const Transpose ta : kTransposes) {
        for (const Transpose tb : kTransposes) {
          for (const Accumulate add : kAccumulates) {
            for (const index_t gap : {0, 5}) {
              SCOPED_TRACE(::testing::Message()
                           << s.m << " x " << s.n << " x " << s.k
                           << (ta == Transpose::yes ? " A^T" : " A")
                           << (tb == Transpose::yes ? " B^T" : " B")
                           << (add == Accumulate::yes ? " added" : "") << ", gap "
                           << gap);
              body(s, ta, tb, add, gap);
            }
          }
        }
      }
    }
  }
};
TYPED_TEST_SUITE(GemmOf, Pairs);

TYPED_TEST(GemmOf, MatchesTheTripleLoop) {
  using P = Problem<typename TypeParam::T, typename TypeParam::To>;
  const std::vector<Size> sizes = {{1, 1, 1},   {1, 33, 31},   {31, 1, 257},
                                   {33, 31, 1}, {7, 5, 3},     {31, 33, 64},
                                   {1, 1, 257}, {65, 129, 33}, {64, 48, 100}};
  this->for_each_problem(sizes, [](Size s, auto ta, auto tb, auto add, index_t gap) {
    const P problem(s, ta, tb, add, gap);
    problem.expect_right(problem.fast().values(), "gemm");
    problem.expect_right(problem.plain().values(), "gemm_reference");
  });
}

// Small whole numbers: every sum is exact in every type, so the two agree to the bit.
TYPED_TEST(GemmOf, ExactWhereNothingRounds) {
  using P = Problem<typename TypeParam::T, typename TypeParam::To>;
  this->for_each_problem({{17, 29, 31}, {64, 16, 32}, {3, 130, 8}},
                         [](Size s, auto ta, auto tb, auto add, index_t gap) {
                           Values a = test::uniform(s.m * s.k, 4, -2, 3);
                           Values b = test::uniform(s.k * s.n, 5, -2, 3);
                           for (double& x : a) x = std::floor(x);
                           for (double& x : b) x = std::floor(x);
                           P problem(s, ta, tb, add, gap, a, b);
                           for (double& x : problem.before) x = std::floor(x);
                           EXPECT_EQ(problem.fast().values(), problem.plain().values());
                         });
}

TYPED_TEST(GemmOf, EmptyShapes) {
  using P = Problem<typename TypeParam::T, typename TypeParam::To>;
  this->for_each_problem({{0, 5, 3}, {5, 0, 3}, {0, 0, 0}},
                         [](Size s, auto ta, auto tb, auto add, index_t gap) {
                           const P problem(s, ta, tb, add, gap);
                           EXPECT_TRUE(problem.fast().values().empty());
                         });
  // A sum of no products is zero, or what was there.
  this->for_each_problem({{5, 7, 0}, {1, 1, 0}}, [](Size s, auto ta, auto tb, auto add,
                                                    index_t gap) {
    const P problem(s, ta, tb, add, gap);
    const Values want = add == Accumulate::yes ? problem.before : Values(s.m * s.n, 0.0);
    EXPECT_EQ(problem.fast().values(), want);
    EXPECT_EQ(problem.plain().values(), want);
  });
}

// Past the block sizes of the libraries, with the work spread over threads.
TYPED_TEST(GemmOf, LargeMatricesAndTheSameBitsTwice) {
  using P = Problem<typename TypeParam::T, typename TypeParam::To>;
  using T = typename TypeParam::T;
  // A host's products of two bytes go by up to 1032 rows, 512 columns and 384 or 1024 of
  // k at a time.
  const std::vector<Size> sizes =
      sizeof(T) == 2 ? std::vector{Size{2100, 2060, 1031}}
                     : std::vector{Size{301, 517, 401}, Size{517, 301, 97}};
  for (const Size s : sizes) {
    for (const Transpose ta : kTransposes) {
      for (const Transpose tb : kTransposes) {
        const P problem(s, ta, tb, Accumulate::yes, 3);
        const auto first = problem.fast();
        problem.expect_right(first.values(), "gemm", sizeof(T) == 2 ? 9973 : 97);
        EXPECT_EQ(first.bytes(), problem.fast().bytes());
      }
    }
  }
}

TYPED_TEST(GemmOf, ShapeOnlyWritesNothing) {
  using P = Problem<typename TypeParam::T, typename TypeParam::To>;
  using T = typename TypeParam::T;
  using To = typename TypeParam::To;
  const P problem({4, 3, 2}, Transpose::no, Transpose::no, Accumulate::yes, 0);
  const Values untouched = problem.run(gemm<T, To>, Exec::shape_only()).values();
  EXPECT_EQ(untouched, problem.before);
}

// The three passes of a linear layer, element by element as gemm.hpp states them.
TYPED_TEST(GemmOf, PassesOfALinearLayer) {
  using T = typename TypeParam::T;
  const index_t rows = 5, in = 7, out = 3;
  const auto whole = [](index_t count, unsigned seed) {
    Values values = test::uniform(count, seed, -3, 4);
    for (double& x : values) x = std::floor(x);
    return values;
  };
  const Values xs = whole(rows * in, 1), ws = whole(out * in, 2),
               gs = whole(rows * out, 3);
  const Array<T> x(xs), w(ws), d_y(gs), y(rows * out, NAN), d_x(rows * in, NAN);
  const Array<Accumulator<T>> d_w(out * in, 100.0);
  const WeightOperand<T> weight(w.cmatrix(out, in));
  linear_forward<T>(Exec(), x.cmatrix(rows, in), weight, y.matrix(rows, out));
  linear_backward_input<T>(Exec(), d_y.cmatrix(rows, out), weight, d_x.matrix(rows, in));
  linear_backward_weight<T>(Exec(), d_y.cmatrix(rows, out), x.cmatrix(rows, in),
                            Accumulate::yes, d_w.matrix(out, in));
  Values y_want(rows * out), d_x_want(rows * in), d_w_want(out * in, 100.0);
  for (index_t r = 0; r < rows; ++r) {
    for (index_t o = 0; o < out; ++o) {
      for (index_t i = 0; i < in; ++i) {
        y_want[r * out + o] += xs[r * in + i] * ws[o * in + i];
        d_x_want[r * in + i] += gs[r * out + o] * ws[o * in + i];
        d_w_want[o * in + i] += gs[r * out + o] * xs[r * in + i];
      }
    }
  }
  EXPECT_EQ(y.values(), y_want);
  EXPECT_EQ(d_x.values(), d_x_want);
  EXPECT_EQ(d_w.values(), d_w_want);
}

// What a linear layer does with its product before it stores it.
template <class T>
class GemmEpilogueOf : public ::testing::Test {
 protected:
  struct Case {
    const char* name;
    bool has_bias, has_residual, is_residual_y;
    Activation activation;
    bool keeps_z;
  };
  // No plain array: nvcc does not know its size in a class derived from this one.
  static constexpr std::array<Case, 13> kCases = {
      {{"nothing", false, false, false, Activation::none, false},
       {"bias", true, false, false, Activation::none, false},
       {"residual", false, true, false, Activation::none, false},
       {"bias and residual", true, true, false, Activation::none, false},
       {"bias and residual in y", true, true, true, Activation::none, false},
       {"GeLU", false, false, false, Activation::gelu_tanh, false},
       {"bias and GeLU", true, false, false, Activation::gelu_tanh, false},
       {"bias and GeLU of a kept z", true, false, false, Activation::gelu_tanh, true},
       {"GeLU of a kept z", false, false, false, Activation::gelu_tanh, true},
       {"bias and GeLU by erf, z kept", true, false, false, Activation::gelu_erf, true},
       {"ReLU of a kept z", false, false, false, Activation::relu, true},
       {"bias and ReLU", true, false, false, Activation::relu, false},
       {"bias and tanh, z kept", true, false, false, Activation::tanh, true}}};

  using Forward = void (*)(const Exec&, View2<const T>, const WeightOperand<T>&,
                           const Epilogue<T>&, View2<T>);

  static double activated(Activation activation, double z) {
    if (activation == Activation::none) return z;
    if (activation == Activation::tanh) return std::tanh(z);
    if (activation == Activation::relu) return std::max(z, 0.0);
    if (activation == Activation::gelu_erf) {
      return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
    }
    const double u = std::sqrt(2 / std::acos(-1.0)) * (z + 0.044715 * z * z * z);
    return 0.5 * z * (1 + std::tanh(u));
  }

  // y and z within the roundings of one sum, one result for each step that may be stored
  // by itself, and the activation.
  static void check(Size s, const Case& which, Forward forward) {
    const auto [rows, out, in] = s;
    const Matrix<T> x(rows, in, 3, random_values(rows * in, 1)),
        w(out, in, 5, random_values(out * in, 2)),
        residual(rows, out, 7, random_values(rows * out, 4)),
        y(rows, out, 1,
          which.is_residual_y ? residual.values() : Values(rows * out, NAN)),
        z(rows, out, 2, Values(rows * out, NAN));
    const Array<T> bias(random_values(out, 3));
    Epilogue<T> epilogue;
    if (which.has_bias) epilogue.bias = bias.cvector();
    if (which.has_residual) {
      epilogue.residual = which.is_residual_y ? y.cview() : residual.cview();
    }
    epilogue.activation = which.activation;
    if (which.keeps_z) epilogue.pre_activation = z.view();
    forward(Exec(), x.cview(), WeightOperand<T>(w.cview()), epilogue, y.view());

    const Values xs = x.values(), ws = w.values(), bs = bias.values(),
                 rs = residual.values(), ys = y.values(), zs = z.values();
    const double u = test::rounding<T>(), sum_u = test::rounding<Accumulator<T>>();
    for (index_t i = 0; i < rows * out; ++i) {
      double want = which.has_bias ? bs[i % out] : 0.0, terms = std::abs(want);
      for (index_t p = 0; p < in; ++p) {
        const double term = xs[i / out * in + p] * ws[i % out * in + p];
        want += term;
        terms += std::abs(term);
      }
      if (which.has_residual) want += rs[i];
      const double size = 1.2 * std::abs(want) + (which.has_residual ? 2.0 : 1.0);
      const double bound = (static_cast<double>(in) + 4) * sum_u * terms + 3 * u * size;
      if (which.keeps_z) {
        ASSERT_NEAR(zs[i], want, bound) << "z, element " << i;
        // Of z as it is stored.
        ASSERT_NEAR(ys[i], activated(which.activation, zs[i]),
                    (u + 8 * sum_u) * (1 + std::abs(zs[i])))
            << i;
      }
      ASSERT_NEAR(ys[i], activated(which.activation, want), 1.2 * bound) << "y " << i;
    }
  }
};
TYPED_TEST_SUITE(GemmEpilogueOf, test::RealTypes);

TYPED_TEST(GemmEpilogueOf, MatchesItsDefinition) {
  using T = TypeParam;
  for (const Size s :
       {Size{1, 1, 1}, Size{31, 33, 257}, Size{33, 31, 5}, Size{32, 32, 32},
        Size{65, 129, 70}, Size{65, 40, 1100}, Size{40, 0, 3}}) {
    for (const auto& which : TestFixture::kCases) {
      SCOPED_TRACE(::testing::Message()
                   << s.m << " x " << s.n << " x " << s.k << ", " << which.name);
      TestFixture::check(s, which, linear_forward<T>);
      TestFixture::check(s, which, linear_forward_reference<T>);
    }
  }
}

// On a host, float is done in blocks of 1024 rows by 768 columns at most.
class GemmEpilogueBlocks : public GemmEpilogueOf<float> {};
TEST_F(GemmEpilogueBlocks, AreCutAndPutTogether) {
  for (const auto& which : kCases) {
    SCOPED_TRACE(which.name);
    check(Size{1030, 775, 9}, which, linear_forward<float>);
    check(Size{1024, 1536, 3}, which, linear_forward<float>);
  }
}

// An activation that was thrown away has the same bits when it is made again.
TYPED_TEST(GemmEpilogueOf, ActivationCanBeMadeAgain) {
  using T = TypeParam;
  const index_t rows = 97, out = 259, in = 131;
  const Array<T> x(random_values(rows * in, 1)), w(random_values(out * in, 2)),
      bias(random_values(out, 3)), y(rows * out), z(rows * out), again(rows * out);
  for (const Activation activation :
       {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu}) {
    linear_forward<T>(Exec(), x.cmatrix(rows, in), WeightOperand<T>(w.cmatrix(out, in)),
                      {.bias = bias.cvector(),
                       .activation = activation,
                       .pre_activation = z.matrix(rows, out)},
                      y.matrix(rows, out));
    activation_forward<T>(Exec(), activation, z.cmatrix(rows, out),
                          again.matrix(rows, out));
    EXPECT_EQ(again.bytes(), y.bytes());
  }
}

TEST(GemmEpilogueErrors, PartsThatDoNotFitAreNamed) {
  const Array<float> x(6), w(12), y(8), z(8), wrong(3);
  const auto call = [&](const Epilogue<float>& epilogue) {
    linear_forward<float>(Exec(), x.cmatrix(2, 3), WeightOperand<float>(w.cmatrix(4, 3)),
                          epilogue, y.matrix(2, 4));
  };
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  EXPECT_THAT([&] { call({.bias = wrong.cvector()}); },
              ThrowsMessage<Error>(HasSubstr("bias has 3 elements, expected 4")));
  EXPECT_THAT([&] { call({.residual = wrong.cmatrix(1, 3)}); },
              ThrowsMessage<Error>(HasSubstr("residual is (1, 3), expected (2, 4)")));
  EXPECT_THAT([&] { call({.pre_activation = z.matrix(2, 4)}); },
              ThrowsMessage<Error>(HasSubstr("without an activation")));
  EXPECT_THAT(
      [&] { call({.residual = z.cmatrix(2, 4), .activation = Activation::gelu_tanh}); },
      ThrowsMessage<Error>(HasSubstr("a residual and an activation")));
}

// Infinities and NaN pass as the sum has them; they must not reach other rows.
TYPED_TEST(GemmOf, NotANumberStaysInItsRow) {
  const index_t n = 40;
  Values a = random_values(n * n, 1);
  a[7 * n + 5] = NAN;
  a[9 * n + 1] = INFINITY;
  const Problem<typename TypeParam::T, typename TypeParam::To> problem(
      {n, n, n}, Transpose::no, Transpose::yes, Accumulate::no, 0, a, Values(n * n, 1.0));
  const Values c = problem.fast().values();
  for (index_t i = 0; i < n; ++i) {
    for (index_t j = 0; j < n; ++j) {
      ASSERT_EQ(std::isnan(c[i * n + j]), i == 7) << i << ", " << j;
      ASSERT_EQ(std::isinf(c[i * n + j]), i == 9) << i << ", " << j;
    }
  }
}

TEST(GemmErrors, ShapesThatDoNotFitAreNamed) {
  const Array<float> a(6), b(12), c(8);
  const auto call = [&](index_t a_rows, index_t a_columns, Transpose ta, index_t b_rows,
                        index_t b_columns, Transpose tb, index_t c_rows,
                        index_t c_columns) {
    for (const auto function : {gemm<float, float>, gemm_reference<float, float>}) {
      function(Exec(), ta, tb, Accumulate::no,
               View2<const float>(a.vector().data(), a_rows, a_columns),
               View2<const float>(b.vector().data(), b_rows, b_columns),
               View2<float>(c.vector().data(), c_rows, c_columns));
    }
  };
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  constexpr auto no = Transpose::no, yes = Transpose::yes;
  EXPECT_NO_THROW(call(2, 3, no, 3, 4, no, 2, 4));
  EXPECT_THAT([&] { call(2, 3, no, 4, 3, no, 2, 3); },
              ThrowsMessage<Error>(HasSubstr("op(A) is (2, 3), op(B) (4, 3), C (2, 3)")));
  EXPECT_THAT([&] { call(2, 3, yes, 4, 3, yes, 3, 4); },
              ThrowsMessage<Error>(HasSubstr("op(A) is (3, 2), op(B) (3, 4), C (3, 4)")));
  EXPECT_THAT([&] { call(2, 3, no, 3, 4, no, 4, 2); },
              ThrowsMessage<Error>(HasSubstr("op(A) is (2, 3), op(B) (3, 4), C (4, 2)")));
  EXPECT_THAT([&] { call(2, 3, no, 3, 4, no, 2, 3); },
              ThrowsMessage<Error>(HasSubstr("C (2, 3)")));
}

}  // namespace
}  // namespace trireme::kernels

// Layer norm and RMS norm against plain sums in double, on odd sizes, in every element
// type.
#include "kernels/norm.hpp"

#include "kernels/reductions.hpp"
#include "support/arrays.hpp"

namespace trireme::kernels {
namespace {

using test::Array;

constexpr NormKind kKinds[] = {NormKind::layernorm, NormKind::rms};

// What an RMS norm has not.
template <class View>
View of_layer_norm(NormKind kind, const View& view) {
  return kind == NormKind::layernorm ? view : View();
}

struct Reference {
  std::vector<double> y, mean, rstd, d_x, d_gamma, d_beta;
};

Reference reference(NormKind kind, index_t rows, index_t h, const std::vector<double>& x,
                    const std::vector<double>& gamma, const std::vector<double>& beta,
                    const std::vector<double>& d_y, double epsilon) {
  Reference r{std::vector<double>(rows * h), std::vector<double>(rows),
              std::vector<double>(rows),     std::vector<double>(rows * h),
              std::vector<double>(h),        std::vector<double>(h)};
  const bool is_layer_norm = kind == NormKind::layernorm;
  for (index_t i = 0; i < rows; ++i) {
    // Long sums in double would be no better than what they are compared with.
    long double mean = 0, variance = 0;
    for (index_t j = 0; j < h && is_layer_norm; ++j) mean += x[i * h + j] / h;
    for (index_t j = 0; j < h; ++j) variance += std::pow(x[i * h + j] - mean, 2) / h;
    const double rstd = 1 / std::sqrt(variance + epsilon);
    r.mean[i] = mean;
    r.rstd[i] = rstd;
    long double mean_g = 0, mean_gx = 0;
    for (index_t j = 0; j < h; ++j) {
      const double x_hat = (x[i * h + j] - mean) * rstd;
      r.y[i * h + j] = x_hat * gamma[j] + (is_layer_norm ? beta[j] : 0);
      r.d_gamma[j] += d_y[i * h + j] * x_hat;
      r.d_beta[j] += d_y[i * h + j];
      if (is_layer_norm) mean_g += d_y[i * h + j] * gamma[j] / h;
      mean_gx += d_y[i * h + j] * gamma[j] * x_hat / h;
    }
    for (index_t j = 0; j < h; ++j) {
      const double x_hat = (x[i * h + j] - mean) * rstd;
      r.d_x[i * h + j] = rstd * (d_y[i * h + j] * gamma[j] - mean_g - x_hat * mean_gx);
    }
  }
  return r;
}

constexpr double kEpsilon = 1e-5;
// A GPU's threads hold rows of 16, 40 and 64 columns in registers; on a host, for tests,
// a warp is one thread with up to four pieces of eight.
constexpr index_t kSizes[] = {1, 16, 31, 33, 40, 64, 257};

// Rows that a GPU's team of several warps has: its threads hold one piece of eight
// columns or more, all of them or some; the longest rows are not held.
constexpr std::pair<index_t, index_t> kLongRows[] = {{33, 264}, {21, 520}, {7, 1000},
                                                     {19, 776}, {5, 1032}, {9, 4096},
                                                     {6, 4104}, {3, 8200}, {2, 16392}};

std::vector<std::pair<index_t, index_t>> shapes() {
  std::vector<std::pair<index_t, index_t>> all(std::begin(kLongRows),
                                               std::end(kLongRows));
  for (const index_t rows : kSizes) {
    for (const index_t h : kSizes) all.emplace_back(rows, h);
  }
  return all;
}

template <class T>
class NormOf : public ::testing::Test {};
TYPED_TEST_SUITE(NormOf, test::RealTypes);

template <class T>
void expect_reference(NormKind kind) {
  using A = Accumulator<T>;
  const Exec exec;
  for (const auto& [rows, h] : shapes()) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << h);
    const auto only = [&](const auto& view) { return of_layer_norm(kind, view); };
    const Array<T> x(test::uniform(rows * h, 1)), gamma(test::uniform(h, 2, 0.5, 1.5)),
        beta(test::uniform(h, 3)), d_y(test::uniform(rows * h, 4)), y(rows * h),
        d_x(rows * h), by_pass(test::uniform(rows * h, 5));
    const Array<A> mean(rows), rstd(rows), scratch(norm_scratch_elements(h), 1e30),
        d_gamma(test::uniform(h, 6)), d_beta(test::uniform(h, 7));
    const std::vector<double> d_gamma_before = d_gamma.values();
    const std::vector<double> d_beta_before = d_beta.values();
    Reference want = reference(kind, rows, h, x.values(), gamma.values(), beta.values(),
                               d_y.values(), kEpsilon);

    norm_forward<T>(exec, kind, x.cmatrix(rows, h), gamma.cvector(), only(beta.cvector()),
                    kEpsilon, y.matrix(rows, h), only(mean.vector()), rstd.vector());
    // h = 1: the deviation is rounding noise of the mean, times 1 / sqrt(epsilon).
    const double u = test::rounding<T>(), ua = test::rounding<A>();
    const double noise = h == 1 ? 400 : 1;
    test::expect_close(mean.values(), want.mean, 8 * ua, 1, "mean");
    test::expect_close(rstd.values(), want.rstd, 16 * ua, 1, "rstd");
    test::expect_close(y.values(), want.y, u + 20 * ua * noise, 1, "y");

    norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                           gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                           View2<const T>(), d_x.matrix(rows, h));
    const double scale = h == 1 ? 1000 : 4;
    test::expect_close(d_x.values(), want.d_x, u + 32 * ua, scale, "d_x");

    // With a by-pass gradient, written over it; and over d_y.
    const std::vector<double> residual = by_pass.values();
    for (std::size_t i = 0; i < residual.size(); ++i) want.d_x[i] += residual[i];
    norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                           gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                           by_pass.cmatrix(rows, h), d_x.matrix(rows, h));
    norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                           gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                           by_pass.cmatrix(rows, h), by_pass.matrix(rows, h));
    test::expect_close(by_pass.values(), want.d_x, u + 32 * ua, scale, "d_x + by-pass");
    EXPECT_EQ(by_pass.bytes(), d_x.bytes());

    norm_backward_weight<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                            only(mean.cvector()), rstd.cvector(), scratch.vector(),
                            Accumulate::yes, d_gamma.vector(), only(d_beta.vector()));
    if (kind == NormKind::rms) want.d_beta.assign(h, 0.0);  // nothing is added
    for (index_t j = 0; j < h; ++j) {                       // added to what was there
      want.d_gamma[j] += d_gamma_before[j];
      want.d_beta[j] += d_beta_before[j];
    }
    test::expect_close(d_gamma.values(), want.d_gamma, 64 * ua * noise, 16, "d_gamma");
    test::expect_close(d_beta.values(), want.d_beta, 64 * ua, 16, "d_beta");
    // Over what was there, whatever it was: the bits of sums that begin at zero.
    const Array<A> gamma_from_zero(h), beta_from_zero(h), gamma_over(h, NAN),
        beta_over(h, NAN);
    norm_backward_weight<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                            only(mean.cvector()), rstd.cvector(), scratch.vector(),
                            Accumulate::yes, gamma_from_zero.vector(),
                            only(beta_from_zero.vector()));
    norm_backward_weight<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                            only(mean.cvector()), rstd.cvector(), scratch.vector(),
                            Accumulate::no, gamma_over.vector(),
                            only(beta_over.vector()));
    EXPECT_EQ(gamma_over.bytes(), gamma_from_zero.bytes());
    if (kind == NormKind::layernorm) {
      EXPECT_EQ(beta_over.bytes(), beta_from_zero.bytes());
    }

    const Array<T> in_place(d_y.values());
    norm_backward_input<T>(exec, kind, in_place.cmatrix(rows, h), x.cmatrix(rows, h),
                           gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                           View2<const T>(), in_place.matrix(rows, h));
    norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                           gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                           View2<const T>(), d_x.matrix(rows, h));
    EXPECT_EQ(in_place.bytes(), d_x.bytes());
  }
}

TYPED_TEST(NormOf, LayerNormMatchesReference) {
  expect_reference<TypeParam>(NormKind::layernorm);
}
TYPED_TEST(NormOf, RmsNormMatchesReference) {
  expect_reference<TypeParam>(NormKind::rms);
}

// The same bits; on a GPU, where nvcc contracts products and sums as it likes in each
// kernel, nearly.
template <class T>
void expect_same(const Array<T>& got, const Array<T>& want, const char* what,
                 double scale = 4) {
  if constexpr (kHostExecution) {
    EXPECT_EQ(got.bytes(), want.bytes()) << what;
  } else {
    test::expect_close(got.values(), want.values(), 16 * test::rounding<T>(), scale,
                       what);
  }
}

// Both gradients in one pass: the bits of two, with and without a by-pass.
template <class T>
void expect_backward_in_one_pass(NormKind kind) {
  using A = Accumulator<T>;
  const Exec exec;
  const auto only = [&](const auto& view) { return of_layer_norm(kind, view); };
  std::vector<std::pair<index_t, index_t>> all(std::begin(kLongRows),
                                               std::end(kLongRows));
  for (const auto& shape : {std::pair{1, 1},
                            {1, 257},
                            {31, 33},
                            {33, 31},
                            {257, 257},
                            {31, 8},
                            {31, 16},
                            {33, 32},
                            {19, 64},
                            {2000, 17}}) {
    all.emplace_back(shape);
  }
  for (const auto& [rows, h] : all) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << h);
    const Array<T> x(test::uniform(rows * h, 1)), gamma(test::uniform(h, 2)), beta(h),
        d_y(test::uniform(rows * h, 4)), by_pass(test::uniform(rows * h, 5)), y(rows * h),
        want(rows * h), d_x(rows * h);
    const index_t blocks = partial_count(rows, h);
    const Array<A> mean(rows), rstd(rows), scratch(norm_scratch_elements(h)),
        gammas(blocks * h, 1e30), betas(blocks * h, 1e30);
    norm_forward<T>(exec, kind, x.cmatrix(rows, h), gamma.cvector(), only(beta.cvector()),
                    kEpsilon, y.matrix(rows, h), only(mean.vector()), rstd.vector());
    const Array<A> want_gamma(test::uniform(h, 6)), want_beta(test::uniform(h, 7));
    norm_backward_weight<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                            only(mean.cvector()), rstd.cvector(), scratch.vector(),
                            Accumulate::yes, want_gamma.vector(),
                            only(want_beta.vector()));
    for (const bool passes_by : {false, true}) {
      const auto residual = passes_by ? by_pass.cmatrix(rows, h) : View2<const T>();
      norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                             gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                             residual, want.matrix(rows, h));
      norm_backward<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                       gamma.cvector(), only(mean.cvector()), rstd.cvector(), residual,
                       d_x.matrix(rows, h),
                       {gammas.matrix(blocks, h), only(betas.matrix(blocks, h))});
      expect_same<T>(d_x, want, "d_x");
      const Array<A> d_gamma(test::uniform(h, 6)), d_beta(test::uniform(h, 7));
      add_partials<A>(exec, gammas.cmatrix(blocks, h), Accumulate::yes, d_gamma.vector());
      if (kind == NormKind::layernorm) {
        add_partials<A>(exec, betas.cmatrix(blocks, h), Accumulate::yes, d_beta.vector());
      }
      const double of_sums = 4 + static_cast<double>(rows) / 8;
      expect_same<A>(d_gamma, want_gamma, "d_gamma", of_sums);
      expect_same<A>(d_beta, want_beta, "d_beta", of_sums);
    }
  }
}

TYPED_TEST(NormOf, BackwardInOnePass) {
  for (const NormKind kind : kKinds) expect_backward_in_one_pass<TypeParam>(kind);
}

// Gradients of 16 bits are those of float, what was there included, rounded once.
TEST(NormNarrow, WeightGradientsAreRoundedOnce) {
  const Exec exec;
  const index_t rows = 2000, h = 33;
  const Array<bf16> x(test::uniform(rows * h, 1)), d_y(test::uniform(rows * h, 4));
  const Array<float> mean(test::uniform(rows, 2)), rstd(test::uniform(rows, 3, 0.5, 1.5)),
      scratch(norm_scratch_elements(h));
  const Array<bf16> before(test::uniform(h, 5, -300, 300));
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    const auto start =
        accumulate == Accumulate::yes ? before.values() : std::vector<double>(h, NAN);
    const Array<float> want_gamma(start), want_beta(start);
    const Array<bf16> d_gamma(start), d_beta(start);
    norm_backward_weight<bf16>(exec, NormKind::layernorm, d_y.cmatrix(rows, h),
                               x.cmatrix(rows, h), mean.cvector(), rstd.cvector(),
                               scratch.vector(), accumulate, want_gamma.vector(),
                               want_beta.vector());
    norm_backward_weight<bf16, bf16>(exec, NormKind::layernorm, d_y.cmatrix(rows, h),
                                     x.cmatrix(rows, h), mean.cvector(), rstd.cvector(),
                                     scratch.vector(), accumulate, d_gamma.vector(),
                                     d_beta.vector());
    const double once = 1.001 * test::rounding<bf16>();
    test::expect_close(d_gamma.values(), want_gamma.values(), once, 1e-3, "d_gamma");
    test::expect_close(d_beta.values(), want_beta.values(), once, 1e-3, "d_beta");
  }
}

TYPED_TEST(NormOf, BitsDoNotDependOnThreads) {
  using T = TypeParam;
  using A = Accumulator<T>;
  const test::OneThread one;
  if (!one.exists) GTEST_SKIP() << "needs a host with two threads";
  const index_t rows = 257, h = 333;
  const Array<T> x(test::uniform(rows * h, 1)), gamma(test::uniform(h, 2)),
      beta(test::uniform(h, 3)), d_y(test::uniform(rows * h, 4));
  for (const NormKind kind : kKinds) {
    const auto only = [&](const auto& view) { return of_layer_norm(kind, view); };
    std::vector<unsigned char> bits[2];
    for (const bool alone : {false, true}) {
      const Exec exec = alone ? one.exec : Exec();
      const Array<T> y(rows * h), d_x(rows * h);
      const Array<A> mean(rows), rstd(rows), scratch(norm_scratch_elements(h)),
          d_gamma(h), d_beta(h);
      norm_forward<T>(exec, kind, x.cmatrix(rows, h), gamma.cvector(),
                      only(beta.cvector()), kEpsilon, y.matrix(rows, h),
                      only(mean.vector()), rstd.vector());
      norm_backward_input<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                             gamma.cvector(), only(mean.cvector()), rstd.cvector(),
                             View2<const T>(), d_x.matrix(rows, h));
      norm_backward_weight<T>(exec, kind, d_y.cmatrix(rows, h), x.cmatrix(rows, h),
                              only(mean.cvector()), rstd.cvector(), scratch.vector(),
                              Accumulate::no, d_gamma.vector(), only(d_beta.vector()));
      for (const auto& part : {y.bytes(), d_x.bytes(), d_gamma.bytes(), d_beta.bytes()}) {
        bits[alone].insert(bits[alone].end(), part.begin(), part.end());
      }
    }
    EXPECT_EQ(bits[0], bits[1]);
  }
}

// E[x^2] - E[x]^2 in float gives nonsense here.
TEST(NormRow, LargeMeanSmallDeviation) {
  const index_t h = 768;
  std::vector<double> values(h);
  for (index_t j = 0; j < h; ++j) values[j] = 4096.0 + (j % 2 == 0 ? 0.25 : -0.25);
  const Array<float> x(values), gamma(h, 1.0), beta(h), y(h), mean(1), rstd(1);
  norm_forward<float>(Exec(), NormKind::layernorm, x.cmatrix(1, h), gamma.cvector(),
                      beta.cvector(), 1e-5, y.matrix(1, h), mean.vector(), rstd.vector());
  EXPECT_NEAR(rstd.values()[0], 1 / std::sqrt(0.0625 + 1e-5), 1e-5);
  EXPECT_NEAR(y.values()[0], 0.25 / std::sqrt(0.0625 + 1e-5), 1e-5);
}

// The sum of a row far from zero rounds; the mean must not show it: times
// 1 / sqrt(epsilon) it would be an output where there is none.
TYPED_TEST(NormOf, ConstantRowsGiveNothing) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t h : {1, 31, 33, 257, 768, 1000}) {
    for (const double value : {3333.3333, -0.1, 1e-3, 47777.7}) {
      SCOPED_TRACE(::testing::Message() << h << " times " << value);
      const Array<T> x(std::vector<double>(h, value)), gamma(h, 1.0), beta(h), y(h, 1.0);
      const Array<A> mean(1), rstd(1);
      norm_forward<T>(Exec(), NormKind::layernorm, x.cmatrix(1, h), gamma.cvector(),
                      beta.cvector(), kEpsilon, y.matrix(1, h), mean.vector(),
                      rstd.vector());
      EXPECT_EQ(y.values(), std::vector<double>(h, 0.0));
      EXPECT_EQ(mean.values()[0], x.values()[0]);
    }
  }
}

// Deviations of 1 about 100 are found as well as their own rounding lets them.
TEST(NormRow, MeanFarFromZero) {
  const index_t rows = 33, h = 257;
  const Array<float> x(test::uniform(rows * h, 9, 98.0, 102.0)), gamma(h, 1.0), beta(h),
      y(rows * h), mean(rows), rstd(rows);
  norm_forward<float>(Exec(), NormKind::layernorm, x.cmatrix(rows, h), gamma.cvector(),
                      beta.cvector(), kEpsilon, y.matrix(rows, h), mean.vector(),
                      rstd.vector());
  const std::vector<double> no(h), one(h, 1.0), d_y(rows * h);
  const Reference want =
      reference(NormKind::layernorm, rows, h, x.values(), one, no, d_y, kEpsilon);
  test::expect_close(mean.values(), want.mean, test::rounding<float>(), 0, "mean");
  // Half an ulp of the mean, times rstd of 0.87.
  test::expect_close(y.values(), want.y, 4e-6, 0.9, "y");
}

TEST(NormShapes, WrongShapesAreRefused) {
  const Array<float> x(6), gamma(3), beta(2), y(6), mean(2), rstd(2);
  try {
    norm_forward<float>(Exec(), NormKind::layernorm, x.cmatrix(2, 3), gamma.cvector(),
                        beta.cvector(), 1e-5, y.matrix(2, 3), mean.vector(),
                        rstd.vector());
    FAIL() << "a beta of the wrong length was taken";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("beta has 2 elements, expected 3"),
              std::string::npos)
        << error.what();
  }
}

TEST(NormShapes, AnRmsNormHasNeitherBetaNorMean) {
  const Array<float> x(6), gamma(3), beta(3), y(6), mean(2), rstd(2);
  const auto text_of = [&](const View1<const float>& of_beta,
                           const View1<float>& of_mean) -> std::string {
    try {
      norm_forward<float>(Exec(), NormKind::rms, x.cmatrix(2, 3), gamma.cvector(),
                          of_beta, 1e-5, y.matrix(2, 3), of_mean, rstd.vector());
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(text_of(beta.cvector(), {}).find("beta has 3 elements, expected 0"),
            std::string::npos);
  EXPECT_NE(text_of({}, mean.vector()).find("mean has 2 elements, expected 0"),
            std::string::npos);
  EXPECT_EQ(text_of({}, {}), "");
}

// The scale of a row of zeros is 1 / sqrt(epsilon), and nothing comes of it.
TEST(NormRow, RmsOfZeros) {
  const index_t h = 33;
  const Array<float> x(h), gamma(h, 1.0), y(h, 1.0), rstd(1);
  norm_forward<float>(Exec(), NormKind::rms, x.cmatrix(1, h), gamma.cvector(), {}, 1e-6,
                      y.matrix(1, h), {}, rstd.vector());
  EXPECT_EQ(y.values(), std::vector<double>(h, 0.0));
  EXPECT_NEAR(rstd.values()[0], 1000, 1e-3);
}

TEST(NormShapes, NoRowsAndShapeOnlyRunsDoNothing) {
  const Array<float> gamma(3), beta(3), x(6), y(6, 7.0), mean(2), rstd(2);
  norm_forward<float>(Exec(), NormKind::layernorm, View2<const float>(nullptr, 0, 3),
                      gamma.cvector(), beta.cvector(), 1e-5, View2<float>(nullptr, 0, 3),
                      View1<float>(nullptr, 0), View1<float>(nullptr, 0));
  norm_forward<float>(Exec::shape_only(), NormKind::layernorm, x.cmatrix(2, 3),
                      gamma.cvector(), beta.cvector(), 1e-5, y.matrix(2, 3),
                      mean.vector(), rstd.vector());
  EXPECT_EQ(y.values(), std::vector<double>(6, 7.0));
}

// Of no rows nothing is read, and the sums are zero.
TYPED_TEST(NormOf, GradientsOfNoRows) {
  using T = TypeParam;
  using A = Accumulator<T>;
  for (const index_t h : {8, 3}) {
    SCOPED_TRACE(::testing::Message() << "0 x " << h);
    const View2<const T> none(nullptr, 0, h);
    const View1<const A> of_no_rows(nullptr, 0);
    ASSERT_EQ(partial_count(0, h), 1);
    const Array<T> gamma(h, 1.0);
    const Array<A> gammas(h, 1e30), betas(h, 1e30),
        scratch(norm_scratch_elements(h), 1e30), d_gamma(h, NAN), d_beta(h, NAN);
    norm_backward<T>(Exec(), NormKind::layernorm, none, none, gamma.cvector(), of_no_rows,
                     of_no_rows, View2<const T>(), View2<T>(nullptr, 0, h),
                     {gammas.matrix(1, h), betas.matrix(1, h)});
    norm_backward_weight<T>(Exec(), NormKind::layernorm, none, none, of_no_rows,
                            of_no_rows, scratch.vector(), Accumulate::no,
                            d_gamma.vector(), d_beta.vector());
    for (const Array<A>* sums : {&gammas, &betas, &d_gamma, &d_beta}) {
      EXPECT_EQ(sums->values(), std::vector<double>(h, 0.0));
    }
  }
}

}  // namespace
}  // namespace trireme::kernels

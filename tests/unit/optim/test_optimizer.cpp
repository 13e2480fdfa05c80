// Whole optimizer steps against a plain AdamW in double written here: norm, clipping,
// decay on matrices only, bias correction, the true number of tokens, the copy that
// passes read; steps that are left out; and a second step that allocates nothing.
#include "optim/optimizer.hpp"

#include <cmath>

#include "comm/rank_grid.hpp"
#include "comm/self_communicator.hpp"
#include "support/allocation_counter.hpp"
#include "support/arrays.hpp"

namespace trireme::optim {
namespace {

using Values = std::vector<double>;

struct Grid {
  comm::RankGrid grid{comm::make_self_communicator("world"), comm::GridShape{}};
};

// Two matrices, one of them longer than a chunk of the kernel, and two vectors; odd
// sizes, so that there are gaps in the slabs.
ParamRegistry some_parameters() {
  ParamRegistry registry;
  registry.add({.name = "a/weight",
                .shard = replicated({5, 7}),
                .init = Initializer::normal(0.5),
                .decay = true});
  registry.add(
      {.name = "a/bias", .shard = replicated({129}), .init = Initializer::constant(1.0)});
  registry.add({.name = "b/weight",
                .shard = replicated({133, 251}),
                .init = Initializer::normal(0.1),
                .decay = true});
  registry.add({.name = "norm/scale",
                .shard = replicated({3}),
                .init = Initializer::constant(-2.0)});
  return registry;
}

template <class V>
Values values_of(const V& view) {
  Kokkos::fence("test");
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  Values values(host.extent(0));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = test::to_double(host(i));
  return values;
}

template <class T>
struct Parameters {
  ParamRegistry registry = some_parameters();
  ParamBuffer<T> buffer;
  Parameters() {
    buffer.allocate(registry, ParamBuffer<T>::Use::training);
    buffer.initialize(Exec(), 7);
    Kokkos::fence("test");
  }
};

template <class T>
class Problem {
 public:
  using Master = Accumulator<T>;

  Problem(const kernels::AdamWDesc& adamw, double clip)
      : adamw_(adamw), optimizer_(exec_, params_, grid_.grid.groups(), adamw, clip) {
    weight_ = values_of(params_.slab(Slab::weight));
    m_.assign(weight_.size(), 0);
    v_.assign(weight_.size(), 0);
    decays_.assign(weight_.size(), false);
    is_parameter_.assign(weight_.size(), false);
    for (std::size_t p = 0; p < parameters_.registry.size(); ++p) {
      const index_t count = parameters_.registry.spec(p).shard.real_elements();
      for (index_t i = params_.offset(p); i < params_.offset(p) + count; ++i) {
        is_parameter_[i] = true;
        decays_[i] = parameters_.registry.spec(p).decay;
      }
    }
  }

  // Gradients as the backward pass leaves them; zero between the parameters.
  Values gradients(unsigned seed, double size) const {
    Values g = test::uniform(weight_.size(), seed, -size, size);
    for (std::size_t i = 0; i < g.size(); ++i) {
      g[i] = is_parameter_[i] ? static_cast<double>(static_cast<Master>(g[i])) : 0;
    }
    return g;
  }
  static double norm_of(const Values& g) {
    double sum = 0;
    for (const double x : g) sum += x * x;
    return std::sqrt(sum);
  }

  void set_gradients(const Values& g) {
    test::Array<Master> array(g);
    Kokkos::deep_copy(params_.slab(Slab::gradient), array.vector());
  }
  void set_step(int k, double lr) { optimizer_.begin_step(exec_, state(), k, lr); }
  StepReport first_half(const test::Array<double>& totals = test::Array<double>({1.0,
                                                                                 64.0})) {
    optimizer_.prepare(exec_, state(), totals.vector());
    return optimizer_.read_report();
  }
  void wait() const { exec_.fence("test: optimizer"); }
  void second_half() { optimizer_.apply(exec_, state()); }

  // The textbook: gradient g, already clipped.
  void plain_adamw(const Values& g, int k, double lr) {
    for (std::size_t i = 0; i < g.size(); ++i) {
      if (!is_parameter_[i]) continue;
      m_[i] = adamw_.beta1 * m_[i] + (1 - adamw_.beta1) * g[i];
      v_[i] = adamw_.beta2 * v_[i] + (1 - adamw_.beta2) * g[i] * g[i];
      const double m_hat = m_[i] / (1 - std::pow(adamw_.beta1, k));
      const double v_hat = v_[i] / (1 - std::pow(adamw_.beta2, k));
      const double decayed = decays_[i] ? lr * adamw_.weight_decay * weight_[i] : 0.0;
      weight_[i] -= lr * m_hat / (std::sqrt(v_hat) + adamw_.epsilon) + decayed;
    }
  }
  // `digits`: roundings that the steps so far may have left in a weight.
  void expect_the_same(double digits = 8) const {
    const double u = test::rounding<Master>();
    test::expect_close(values_of(params_.slab(Slab::weight)), weight_, digits * u, 1,
                       "weight");
    test::expect_close(values_of(params_.slab(Slab::exp_avg)), m_, 2 * digits * u, 1e-2,
                       "exp_avg");
    test::expect_close(values_of(params_.slab(Slab::exp_avg_sq)), v_, 2 * digits * u,
                       1e-4, "exp_avg_sq");
    // The gaps are nobody's: they stay as they are.
    const Values now = values_of(params_.slab(Slab::weight));
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!is_parameter_[i]) {
        ASSERT_EQ(now[i], 0.0) << i;
      }
    }
    // What passes read is the master weight, rounded.
    const Values rounded = test::Array<T>(now).values();
    for (std::size_t p = 0; p < parameters_.registry.size(); ++p) {
      const Values read = values_of(params_.compute_slice(p));
      for (std::size_t i = 0; i < read.size(); ++i) {
        ASSERT_EQ(read[i], rounded[extent(params_.offset(p)) + i]) << p << ": " << i;
      }
    }
  }
  // All that an update may write.
  std::vector<Values> state_values() const {
    std::vector<Values> all;
    for (const Slab slab : {Slab::weight, Slab::exp_avg, Slab::exp_avg_sq}) {
      all.push_back(values_of(params_.slab(slab)));
    }
    all.push_back(values_of(params_.compute_copy()));
    return all;
  }
  double gradient_scale() const {
    Kokkos::fence("test");
    kernels::StepState values;
    Kokkos::deep_copy(values, state_);
    return values.gradient_scale;
  }
  View0<kernels::StepState> state() const {
    return View0<kernels::StepState>(state_.data());
  }
  const Values& weight() const { return weight_; }
  ParamBuffer<T>& params() { return params_; }

 private:
  Exec exec_;
  Grid grid_;
  Parameters<T> parameters_;
  ParamBuffer<T>& params_ = parameters_.buffer;
  Kokkos::View<kernels::StepState, DeviceMemory> state_{"state"};
  kernels::AdamWDesc adamw_;
  Optimizer<T> optimizer_;
  Values weight_, m_, v_;
  std::vector<bool> decays_, is_parameter_;
};

Values scaled(Values values, double factor) {
  for (double& x : values) x *= factor;
  return values;
}

constexpr kernels::AdamWDesc kAdamW{
    .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

template <class T>
class OptimizerOf : public ::testing::Test {};
TYPED_TEST_SUITE(OptimizerOf, test::RealTypes);

TYPED_TEST(OptimizerOf, TenStepsAreThoseOfPlainAdamW) {
  Problem<TypeParam> problem(kAdamW, /*clip=*/1.0);
  int clipped = 0;
  for (int k = 1; k <= 10; ++k) {
    const double lr = 1e-3 * k;
    // Norms on both sides of the clip: a hundred and eighty times 0.58 times this.
    const double size = k % 2 == 0 ? 3e-2 : 1e-3;
    const Values g = problem.gradients(static_cast<unsigned>(k), size);
    const double norm = Problem<TypeParam>::norm_of(g);
    const double clip = std::min(1.0, 1.0 / (norm + 1e-6));
    clipped += clip < 1.0;
    problem.set_gradients(g);
    problem.set_step(k, lr);
    const StepReport report =
        problem.first_half(test::Array<double>({123.5 * k, 1000.0, -3.5, 7.0}));
    EXPECT_EQ(report.losses[0].sum, 123.5 * k);
    EXPECT_EQ(report.losses[0].count, 1000.0);
    EXPECT_EQ(report.losses[1].mean(), -0.5);
    EXPECT_NEAR(report.grad_norm, norm, 1e-12 * norm);
    EXPECT_NEAR(problem.gradient_scale(), clip, 1e-12);
    problem.second_half();
    problem.plain_adamw(scaled(g, clip), k, lr);
    // Moments are rounded once per step; a weight takes lr / u of their roundings.
    problem.expect_the_same(16);
  }
  EXPECT_GE(clipped, 4);
  EXPECT_LE(clipped, 8);
}

// Without gradients only matrices move, by their decay.
TYPED_TEST(OptimizerOf, DecayOfMatricesOnly) {
  Problem<TypeParam> problem(kAdamW, 1.0);
  const Values before = problem.weight();
  problem.set_gradients(Values(before.size()));
  problem.set_step(1, 0.5);
  EXPECT_EQ(problem.first_half().grad_norm, 0.0);
  problem.second_half();
  const auto& params = problem.params();
  for (std::size_t p = 0; p < params.registry().size(); ++p) {
    const Values now = values_of(params.slice(Slab::weight, p));
    const double factor = params.registry().spec(p).decay ? 1 - 0.5 * 0.1 : 1.0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const double was = before[static_cast<std::size_t>(params.offset(p)) + i];
      ASSERT_NEAR(now[i], was * factor,
                  2 * test::rounding<typename Problem<TypeParam>::Master>())
          << i;
    }
  }
}

// The first step moves every weight by lr, whatever the gradient's size: that is what
// bias correction is for.
TYPED_TEST(OptimizerOf, FirstStepIsOfTheLearningRate) {
  kernels::AdamWDesc adamw = kAdamW;
  adamw.weight_decay = 0;
  adamw.epsilon = 1e-30;
  Problem<TypeParam> problem(adamw, /*clip: none=*/0.0);
  const double u = test::rounding<typename Problem<TypeParam>::Master>();
  const Values before = problem.weight();
  Values g = problem.gradients(5, 1e-3);
  problem.set_gradients(g);
  problem.set_step(1, 0.25);
  problem.first_half();
  problem.second_half();
  const Values now = values_of(problem.params().slab(Slab::weight));
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double step = g[i] > 0 ? -0.25 : g[i] < 0 ? 0.25 : 0.0;
    ASSERT_NEAR(now[i] - before[i], step, 16 * u) << i;
  }
}

TYPED_TEST(OptimizerOf, ClipsAboveTheNormOnly) {
  const auto scale_with = [&](double clip_over_norm) {
    Problem<TypeParam> sizes(kAdamW, 0.0);
    const Values g = sizes.gradients(1, 0.1);
    const double norm = Problem<TypeParam>::norm_of(g);
    Problem<TypeParam> problem(kAdamW, clip_over_norm * norm);
    problem.set_gradients(g);
    problem.set_step(1, 1e-3);
    const StepReport report = problem.first_half();
    EXPECT_NEAR(report.grad_norm, norm, 1e-12 * norm);  // before clipping
    const double want =
        clip_over_norm > 0 ? std::min(1.0, clip_over_norm * norm / (norm + 1e-6)) : 1.0;
    EXPECT_NEAR(problem.gradient_scale(), want, 1e-12);
    return problem.gradient_scale();
  };
  EXPECT_EQ(scale_with(1.001), 1.0);
  EXPECT_EQ(scale_with(100), 1.0);
  EXPECT_EQ(scale_with(0), 1.0);  // none
  EXPECT_LT(scale_with(1), 1.0);  // by the 1e-6 of torch's formula
  EXPECT_NEAR(scale_with(0.5), 0.5, 1e-6);
  EXPECT_NEAR(scale_with(1e-3), 1e-3, 1e-8);
}

// Numbers that are not finite are reported and counted, and nobody has to keep the update
// from them: it leaves everything as it was.
TYPED_TEST(OptimizerOf, BadGradientsAreReportedAndNotUsed) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    Problem<TypeParam> problem(kAdamW, 1.0);
    const Values good = problem.gradients(3, 1.0);
    Values g = good;
    g[2] = g[5 * 7 - 1] = g[static_cast<std::size_t>(problem.params().offset(2))] = bad;
    problem.set_gradients(g);
    problem.set_step(1, 1e-2);
    const auto before = problem.state_values();
    const StepReport report = problem.first_half();
    EXPECT_FALSE(std::isfinite(report.grad_norm));
    EXPECT_FALSE(report.is_finite());
    EXPECT_TRUE(report.has_finite_losses());
    EXPECT_EQ(report.non_finite, 3);
    problem.second_half();
    EXPECT_EQ(problem.state_values(), before);
    // The step after, which has the same number, is as if there had been none before.
    problem.set_gradients(good);
    problem.set_step(1, 1e-2);
    const StepReport after = problem.first_half();
    EXPECT_TRUE(after.is_finite());
    EXPECT_EQ(after.non_finite, 0);
    problem.second_half();
    problem.plain_adamw(scaled(good, 1.0 / (Problem<TypeParam>::norm_of(good) + 1e-6)), 1,
                        1e-2);
    problem.expect_the_same();
  }
}

// Of several objectives one that is not finite is enough.
TYPED_TEST(OptimizerOf, BadLossesAreNotUsed) {
  Problem<TypeParam> problem(kAdamW, 1.0);
  problem.set_gradients(problem.gradients(3, 1.0));
  problem.set_step(1, 1e-2);
  const auto before = problem.state_values();
  const StepReport report =
      problem.first_half(test::Array<double>({1.0, 64.0, NAN, 64.0}));
  EXPECT_TRUE(std::isfinite(report.grad_norm));
  EXPECT_FALSE(report.is_finite());
  problem.second_half();
  EXPECT_EQ(problem.state_values(), before);
}

TYPED_TEST(OptimizerOf, SecondStepAllocatesNothing) {
  Problem<TypeParam> problem(kAdamW, 1.0);
  const test::Array<double> totals({1.0, 64.0});
  problem.set_gradients(problem.gradients(1, 0.1));
  problem.set_step(1, 1e-3);
  problem.first_half(totals);
  problem.second_half();
  test::AllocationCounter counter;
  problem.first_half(totals);
  problem.second_half();
  problem.wait();
  counter.stop();
  EXPECT_EQ(counter.of_trireme(kHostExecution), 0) << counter.report();
}

}  // namespace
}  // namespace trireme::optim

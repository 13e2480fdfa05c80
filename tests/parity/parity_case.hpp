// parity/parity_case.hpp — a model against an oracle, which another program has written
// in fp64: logits, loss, every gradient, and AdamW steps with clipping, decay and
// schedule. The same for every kind of model; what a kind brings is its fixture.
//
// Of the oracle are read: logits (b, positions of the head's stream, v), of which rows
// count that the first objective's mask has, and loss (objectives) of batch 0,
// gradient/NAME, and where it trains train/loss (n, objectives), train/grad_norm and
// train/learning_rate (n), and final/NAME: the weights after the last step, in fp32.
#ifndef TRIREME_TESTS_PARITY_PARITY_CASE_HPP_
#define TRIREME_TESTS_PARITY_PARITY_CASE_HPP_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "comm/process_groups.hpp"
#include "io/safetensors.hpp"
#include "model/losses.hpp"
#include "optim/lr_schedule.hpp"
#include "step/train_step.hpp"
#include "support/filled_batch.hpp"
#include "support/safetensors.hpp"

namespace trireme::test {

inline std::string parity_fixture(const std::string& name) {
  return std::string(std::getenv("TRIREME_SOURCE_DIR")) + "/tests/parity/fixtures/" +
         name;
}

// Of sample i of batch n: number n * samples + i.
using ElementOfField =
    std::function<double(const FieldSpec&, index_t sample, index_t position)>;

// A model, its weights and its batches.
struct ParityFixture {
  std::string oracle;  // file
  model::Blueprint blueprint;
  index_t samples = 0, batches = 0;  // of a batch; how many there are
  std::string logits = "logits";     // what the oracle calls them
  std::function<std::vector<float>(const ParamSpec&)> weights = {};
  ElementOfField element = {};
};

// A fixture's model in precision T, and its oracle.
template <class T>
class ParityCase {
 public:
  explicit ParityCase(const ParityFixture& fixture)
      : fixture_(fixture),
        oracle_(fixture.oracle),
        state_(comm::make_groups_of_one(), fixture.blueprint),
        filled_(fixture.blueprint.batch, fixture.samples),
        step_((set_weights(), exec_), state_,
              {.micro = fixture.samples,
               .sequence = fixture.blueprint.batch.streams.at(0).sequence,
               .microbatches = 1},
              timers_) {}

  void expect_logits_and_loss(double logit_bound, double loss_bound) {
    const double loss = loss_with_gradients(0);
    const double expected_loss = losses_of_batches("loss").at(0);
    EXPECT_LE(std::abs(loss - expected_loss) / expected_loss, loss_bound);

    // The backward pass turned the logits into their gradient: evaluate again.
    step_.evaluate([&](int) { return batch(0); }, 1);
    const std::vector<double> expected = numbers(fixture_.logits);  // (b, positions, v)
    const auto logits = step_.last_logits();                        // (positions * b, v)
    const auto b = extent(fixture_.samples), v = logits.extent(1);
    const std::size_t positions = logits.extent(0) / b;
    ASSERT_EQ(expected.size(), b * positions * v);
    double worst = 0;
    for (std::size_t at = 0; at < expected.size(); ++at) {
      const std::size_t t = at % v, p = at / v % positions, i = at / v / positions;
      if (!counts(static_cast<index_t>(i), static_cast<index_t>(p))) continue;
      worst = std::max(
          worst, std::abs(static_cast<double>(logits(p * b + i, t)) - expected[at]));
    }
    EXPECT_LE(worst, logit_bound);
    ::testing::Test::RecordProperty("logit_error", fmt::format("{:.2e}", worst));
  }

  // The mean of one objective, of a batch of such elements.
  double evaluated_loss(std::size_t objective, const ElementOfField& element) {
    const auto fetch = [&](int) { return filled_.fill(0, element); };
    return step_.evaluate(fetch, 1).at(objective).mean();
  }

  // Of batch 0: the loss, and behind it every gradient.
  std::vector<double> loss_and_gradients() {
    std::vector<double> all = {loss_with_gradients(0)};
    const auto slab = state_.params.slab(Slab::gradient);
    for (std::size_t i = 0; i < slab.extent(0); ++i) {
      all.push_back(static_cast<double>(slab(i)));
    }
    return all;
  }

  // Relative to the gradient's norm, or to 1e-4 of that of all, where it is larger.
  void expect_gradients(double bound) {
    loss_with_gradients(0);
    double square = 0;
    for (const ParamSpec& spec : state_.registry.specs()) {
      for (const double g : numbers("gradient/" + spec.name)) square += g * g;
    }
    const double least = 1e-4 * std::sqrt(square);
    for (std::size_t i = 0; i < state_.registry.size(); ++i) {
      const std::string& name = state_.registry.spec(i).name;
      const std::vector<double> expected = numbers("gradient/" + name);
      const auto gradient = state_.params.slice(Slab::gradient, i);
      ASSERT_EQ(expected.size(), gradient.extent(0));
      double error = 0, norm = 0;
      for (std::size_t n = 0; n < expected.size(); ++n) {
        error += std::pow(static_cast<double>(gradient(n)) - expected[n], 2);
        norm += expected[n] * expected[n];
      }
      EXPECT_LE(std::sqrt(error), bound * std::max(std::sqrt(norm), least)) << name;
    }
  }

  // The schedule and the optimizer are those of the programs that write oracles. The
  // weights' bound is that of expect_final_weights().
  void expect_training(double bound, double weight_bound) {
    optim::Optimizer<T> optimizer(
        exec_, state_.params, state_.groups,
        {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}, 1.0);
    const optim::LrSchedule schedule{.kind = optim::LrSchedule::Kind::cosine,
                                     .lr = 1e-3,
                                     .min_lr = 1e-4,
                                     .warmup = 4,
                                     .decay = fixture_.batches};
    const std::vector<double> losses = losses_of_batches("train/loss"),
                              norms = numbers("train/grad_norm"),
                              rates = numbers("train/learning_rate");
    ASSERT_EQ(std::ssize(losses), fixture_.batches);
    for (index_t k = 1; k <= fixture_.batches; ++k) {
      const std::size_t n = extent(k - 1);
      const double lr = schedule.at(k);
      EXPECT_NEAR(lr, rates[n], 1e-12) << "update " << k;
      const double loss = loss_with_gradients(k - 1);
      EXPECT_LE(std::abs(loss - losses[n]) / losses[n], bound) << "update " << k;
      optimizer.begin_step(exec_, step_.state_view(), k, lr);
      optimizer.prepare(exec_, step_.state_view(), step_.totals());
      const double norm = optimizer.read_report().grad_norm;
      EXPECT_LE(std::abs(norm - norms[n]) / norms[n], bound) << "update " << k;
      optimizer.apply(exec_, step_.state_view());
    }
    expect_final_weights(weight_bound);
  }

  // With the fixture's weights.
  step::ModelState<T>& state() { return state_; }

 private:
  // After the last step, relative to each weight's norm. The bias of the keys moves all
  // scores of a query alike, which softmax does not see: its gradient is nothing but
  // rounding, and AdamW divides that by its own size. In fp32 it is left out.
  void expect_final_weights(double bound) {
    exec_.fence("test");
    for (std::size_t i = 0; i < state_.registry.size(); ++i) {
      const std::string& name = state_.registry.spec(i).name;
      const auto expected = elements<float>(oracle_.at("final/" + name));
      const auto weight = Kokkos::create_mirror_view_and_copy(
          Kokkos::HostSpace{}, state_.params.slice(Slab::weight, i));
      ASSERT_EQ(expected.size(), weight.extent(0)) << name;
      const bool has_noise =
          std::is_same_v<T, float> && name.ends_with("attention/qkv/bias");
      const std::size_t third = expected.size() / 3;
      double error = 0, norm = 0;
      for (std::size_t n = 0; n < expected.size(); ++n) {
        if (has_noise && n / third == 1) continue;
        const auto wanted = static_cast<double>(expected[n]);
        error += std::pow(static_cast<double>(weight(n)) - wanted, 2);
        norm += wanted * wanted;
      }
      EXPECT_LE(std::sqrt(error), bound * std::sqrt(norm)) << name;
    }
  }

  void set_weights() {
    state_.params.allocate(state_.registry, ParamBuffer<T>::Use::training);
    for (std::size_t p = 0; p < state_.registry.size(); ++p) {
      const ParamSpec& spec = state_.registry.spec(p);
      const std::vector<float> values = fixture_.weights(spec);
      const auto slice = state_.params.slice(Slab::weight, p);
      TRIREME_REQUIRE(values.size() == slice.extent(0), "'{}' has {} of {} elements",
                      spec.name, values.size(), slice.extent(0));
      const auto host = Kokkos::create_mirror_view(slice);
      for (std::size_t i = 0; i < values.size(); ++i) host(i) = values[i];
      Kokkos::deep_copy(slice, host);
    }
    state_.params.refresh_compute(exec_);
  }

  std::vector<double> numbers(const std::string& name) const {
    return elements<double>(oracle_.at(name));
  }
  // The sum over objectives for each batch.
  std::vector<double> losses_of_batches(const std::string& name) const {
    const std::vector<double> all = numbers(name);
    const std::size_t objectives = fixture_.blueprint.objectives.size();
    std::vector<double> sums(all.size() / objectives, 0.0);
    for (std::size_t i = 0; i < all.size(); ++i) sums[i / objectives] += all[i];
    return sums;
  }
  bool counts(index_t sample, index_t position) const {
    const BatchSpec& spec = fixture_.blueprint.batch;
    const FieldSpec& mask =
        spec.fields[spec.field(fixture_.blueprint.objectives.at(0).mask)];
    return fixture_.element(mask, sample, position) != 0.0;
  }
  HostBatch batch(index_t n) {
    return filled_.fill(n * fixture_.samples, fixture_.element);
  }
  double loss_with_gradients(index_t n) {
    const index_t first = n * fixture_.samples;
    const BatchSpec& spec = fixture_.blueprint.batch;
    step_.accumulate_gradients([&](int) { return batch(n); },
                               [&](const std::string& mask) {
                                 return sum_of(spec, spec.fields[spec.field(mask)], first,
                                               first + fixture_.samples,
                                               fixture_.element);
                               });
    exec_.fence("test");
    const auto totals = step_.totals();
    std::vector<kernels::LossSum> sums;
    for (std::size_t i = 0; i < fixture_.blueprint.objectives.size(); ++i) {
      sums.push_back({totals(2 * i), totals(2 * i + 1)});
    }
    return model::losses_of(fixture_.blueprint.objectives, sums).total;
  }

  const ParityFixture fixture_;
  Exec exec_;
  Timers timers_;
  io::SafetensorsReader oracle_;
  step::ModelState<T> state_;
  FilledBatch filled_;
  step::TrainStep<T> step_;
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_PARITY_PARITY_CASE_HPP_

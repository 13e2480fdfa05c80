// check/selftest_training.cpp — the checks of a whole model: gradients against
// differences of the loss, and a short training.
//
// The gradients are checked in double precision, where differences of the loss leave
// errors of 1e-8 and any wrong derivative is far larger; the model is as small and as
// odd-sized as the kernels allow. The training is in single precision on all ranks: its
// texts follow a rule that a model learns within a second, so that a loss which does not
// fall means that some part of a step is wrong on this machine.
#include <chrono>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/plural.hpp"
#include "base/wall_time.hpp"
#include "check/selftest.hpp"
#include "comm/rank_grid.hpp"
#include "kernels/initialize.hpp"
#include "model/blueprint.hpp"
#include "optim/optimizer.hpp"
#include "step/replica.hpp"
#include "step/train_step.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::check::checks {

namespace {

// Texts that follow a rule and can be learned: each token is 5 times the one before plus
// 3, modulo the vocabulary.
class Rule {
 public:
  Rule(index_t micro, index_t sequence, index_t vocabulary)
      : micro_(micro), sequence_(sequence), vocabulary_(vocabulary) {
    const auto rows = static_cast<std::size_t>(micro * sequence);
    tokens_.resize(rows);
    labels_.resize(rows);
    positions_.resize(rows);
    mask_.assign(rows, 1.0f);
  }

  // All labels count.
  step::SumField sum() const {
    return [rows = static_cast<double>(mask_.size())](const auto&) { return rows; };
  }
  // `first` differs from sample to sample, as do the first tokens.
  HostBatch batch(std::uint64_t first) {
    for (index_t sample = 0; sample < micro_; ++sample) {
      auto token = static_cast<index_t>((first + static_cast<std::uint64_t>(sample)) %
                                        static_cast<std::uint64_t>(vocabulary_));
      for (index_t position = 0; position < sequence_; ++position) {
        const auto row = static_cast<std::size_t>(position * micro_ + sample);
        tokens_[row] = static_cast<std::int32_t>(token);
        token = (5 * token + 3) % vocabulary_;
        labels_[row] = static_cast<std::int32_t>(token);
        positions_[row] = static_cast<std::int32_t>(position);
      }
    }
    return {{tokens_.data(), positions_.data(), labels_.data(), mask_.data()}, first};
  }

 private:
  index_t micro_, sequence_, vocabulary_;
  std::vector<std::int32_t> tokens_, labels_, positions_;
  std::vector<float> mask_;
};

template <class T>
double loss_of(step::TrainStep<T>& step) {
  const auto totals = step.totals();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), totals);
  return host(0) / host(1);
}

// Element i of a slab, read and written from the host.
double get(const Exec& exec, View1<double> slab, std::size_t i) {
  double value = 0;
  const Kokkos::View<double, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      host(&value);
  Kokkos::deep_copy(exec.space(), host, View0<double>(slab.data() + i));
  exec.fence("selftest");
  return value;
}

void set(const Exec& exec, View1<double> slab, std::size_t i, double value) {
  kernels::fill(exec, View1<double>(slab.data() + i, 1), value);
}

}  // namespace

std::string gradients(const Exec& exec) {
  // Everything at once: dropout on, grouped heads, sizes that fill no tile.
  const model::Architecture config{.layers = 2,
                                   .hidden = 12,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .ffn_hidden = 20,
                                   .sequence = 7,
                                   .vocab = 19,
                                   .dropout = 0.1,
                                   .attention_dropout = 0.1,
                                   .init_std = 0.3};
  step::ModelState<double> state(comm::make_groups_of_one(), config);
  state.params.allocate(state.registry, ParamBuffer<double>::Use::training);
  state.params.initialize(exec, 42);
  Timers timers;
  step::TrainStep<double> step(exec, state, {.micro = 3, .sequence = 7}, timers);
  Rule rule(3, 7, 19);
  const auto loss = [&] {
    step.accumulate_gradients([&](int) { return rule.batch(1); }, rule.sum());
    return loss_of(step);
  };

  loss();
  const View1<double> weight = state.params.slab(Slab::weight);
  const View1<double> gradient = state.params.slab(Slab::gradient);
  std::vector<double> backward;
  std::vector<std::size_t> where;
  for (std::size_t i = 0; i < state.registry.size(); ++i) {  // two of each parameter
    const index_t count = state.registry.spec(i).shard.real_elements();
    for (const index_t j : {count / 3, count - 1}) {
      where.push_back(static_cast<std::size_t>(state.params.offset(i) + j));
      backward.push_back(get(exec, gradient, where.back()));
    }
  }
  double difference = 0, norm = 0;
  constexpr double h = 1e-4;
  for (std::size_t n = 0; n < where.size(); ++n) {
    const double at = get(exec, weight, where[n]);
    set(exec, weight, where[n], at + h);
    const double above = loss();
    set(exec, weight, where[n], at - h);
    const double below = loss();
    set(exec, weight, where[n], at);
    const double central = (above - below) / (2 * h);
    difference += (central - backward[n]) * (central - backward[n]);
    norm += central * central;
  }
  const double error = std::sqrt(difference / norm);
  TRIREME_REQUIRE(error <= 1e-6,
                  "gradients of {} differ from differences of the loss by {:.1e}, "
                  "relative; expected at most 1e-6",
                  format_plural(static_cast<std::int64_t>(where.size()), "weight"),
                  error);
  return fmt::format("error {:.1e} over {}, float64", error,
                     format_plural(static_cast<std::int64_t>(where.size()), "weight"));
}

std::string training(const Exec& exec, const std::shared_ptr<comm::Communicator>& world) {
  const model::Architecture config{.layers = 2,
                                   .hidden = 64,
                                   .heads = 4,
                                   .kv_heads = 4,
                                   .ffn_hidden = 256,
                                   .sequence = 32,
                                   .vocab = 61};
  constexpr index_t kMicro = 4;
  const comm::RankGrid grid(world, {.data = world->size()});
  const auto replica =
      step::make_replica(DType::float32, grid.groups(), model::make_blueprint(config));
  replica->begin_training(exec, {.micro = kMicro, .sequence = config.sequence},
                          {.adamw = {.beta2 = 0.99}, .clip_norm = 1.0});
  replica->initialize(42);
  Rule rule(kMicro, config.sequence, config.vocab);

  const auto ranks = static_cast<std::uint64_t>(world->size());
  const auto rank = static_cast<std::uint64_t>(world->rank());
  const index_t samples = kMicro * world->size();
  const auto start = std::chrono::steady_clock::now();
  double first = 0, last = 0, seconds = 0;
  int k = 0;
  // The training goes on for as long as rank 0's clock says, which decides for all.
  for (std::int64_t goes_on = 1; goes_on != 0; ++k) {
    const auto sample = (static_cast<std::uint64_t>(k) * ranks + rank) * kMicro;
    const optim::StepReport report =
        replica->step({.number = k + 1,
                       .learning_rate = 3e-3,
                       .fetch = [&](int) { return rule.batch(sample); },
                       .sum = rule.sum()});
    last = report.losses[0].mean();
    if (k == 0) first = last;
    seconds = seconds_since(start);
    goes_on = (seconds < 1.0 && k < 200 && last > 0.1 * first) || k < 20 ? 1 : 0;
    world->broadcast(goes_on);
  }
  const double uniform = std::log(static_cast<double>(config.vocab));
  TRIREME_REQUIRE(std::abs(first - uniform) < 0.2,
                  "the first loss is {:.3f}; log(vocabulary) = {:.3f} was expected",
                  first, uniform);
  TRIREME_REQUIRE(
      last < 0.8 * first,
      "after {} the loss is {:.3f}; it began at {:.3f} and should have fallen by a fifth",
      format_plural(k, "step"), last, first);
  const double tokens =
      static_cast<double>(k) * static_cast<double>(samples * config.sequence) / seconds;
  return fmt::format("loss {:.2f} -> {:.2f} in {}, {:.0f} tokens/s", first, last,
                     format_plural(k, "step"), tokens);
}

}  // namespace trireme::check::checks

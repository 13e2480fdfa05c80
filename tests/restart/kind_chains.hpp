// tests/restart/kind_chains.hpp — a BERT or T5 that goes on from layout to layout, as
// rows of the table of layouts say (layouts/restart_chains.hpp): every step has the loss
// of one rank that changed nothing but the type that it computes in, and what is done
// again in its own layout has the same bits.
#ifndef TRIREME_TESTS_RESTART_KIND_CHAINS_HPP_
#define TRIREME_TESTS_RESTART_KIND_CHAINS_HPP_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "layouts/restart_chains.hpp"
#include "restart/kind_runs.hpp"

namespace trireme::test {

class KindChains : public KindRuns {
 protected:
  // Behind so many steps the next start goes on.
  static constexpr int kBetween = 2;

  // All pairs: chains of so many restarts, on up to so many ranks.
  static const RestartChains& all_chains(config::ModelKind kind) {
    static const RestartChains bert = restart_chains(config::ModelKind::bert, 8, 5),
                               t5 = restart_chains(config::ModelKind::t5, 8, 5);
    return kind == config::ModelKind::t5 ? t5 : bert;
  }

  // The starts of `repeated`, by number, are done again from their own checkpoints, to
  // the bit.
  void expect_chain(const RestartedModel& of, const RestartChain& chain,
                    const std::set<std::size_t>& repeated) {
    prepare_chain(of, chain);
    std::set<std::int64_t> skipped;  // of steps in fp16
    double tolerance = 0.0;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      SCOPED_TRACE(
          fmt::format("{}, start {}: {}", of.name, i, fmt::join(chain[i].keys, " ")));
      const int begin = static_cast<int>(i) * kBetween;
      if (i == 0 || chain[i].compute != chain[i - 1].compute) {
        begin_reference(chain[i], begin);
      }
      const bool is_repeated = repeated.contains(i);
      const int end = begin + (is_repeated ? 2 : 1) * kBetween;
      go_on_until(run_of(i), i == 0 ? "" : run_of(i - 1), begin, end, chain[i]);
      tolerance = std::max(tolerance, tolerance_of(chain[i].compute));
      LayoutRuns::expect_losses_of(reference_, end, run_of(i), begin, tolerance);
      expect_state_of_reference(run_of(i), end);
      if (chain[i].compute == config::Precision::fp16) {
        EXPECT_GT(state_after(run_of(i), begin + kBetween).skipped_steps, 0);
        for (const auto& step : metrics(run_of(i)).steps) skipped.insert(step.skipped);
      }
      if (!is_repeated) continue;
      const std::string again = run_of(i) + "-again";
      go_on_until(again, run_of(i), begin + kBetween, end, chain[i]);
      // A run that branches off knows no best loss of the one before.
      expect_same_checkpoint(newest(run_of(i)), newest(again), Place::middle);
    }
    if (!skipped.empty()) {
      EXPECT_EQ(skipped, (std::set<std::int64_t>{0, 1}));
    }
  }

 private:
  void prepare_chain(const RestartedModel& of, const RestartChain& chain) {
    const auto steps = (static_cast<int>(chain.size()) + 1) * kBetween;
    Arguments keys = {fmt::format("model.heads={}", kChainHeads),
                      fmt::format("batch.global={}", kChainSamples),
                      fmt::format("run.steps={}", steps),
                      fmt::format("optimizer.decay={}", steps),
                      fmt::format("checkpoint.every={}", kBetween)};
    const index_t layers = of.is_t5() ? kChainEncoderLayers : kChainLayers;
    keys.push_back(fmt::format("model.layers={}", layers));
    if (of.is_t5()) {
      keys.push_back(fmt::format("model.decoder_layers={}", kChainLayers - layers));
    }
    const auto is_fp16 = [](const ChainStart& start) {
      return start.compute == config::Precision::fp16;
    };
    if (std::ranges::any_of(chain, is_fp16)) {
      // The scale falls and grows again within and between the starts.
      keys.push_back(fmt::format("precision.loss_scale.initial={}", of.first_scale));
      keys.push_back("precision.loss_scale.window=3");
    }
    prepare(of, keys);
    ++chains_;
    reference_.clear();
  }
  std::string run_of(std::size_t start) const {
    return fmt::format("chain{}-{}", chains_, start);
  }
  // A start from what another run saved after `begin` steps, or of nothing.
  void go_on_until(const std::string& run, const std::string& from, int begin, int end,
                   const ChainStart& of) {
    layouts_[run] = {of.ranks, of.keys};
    Arguments more = {"--set", fmt::format("run.stop_after={}", end - begin)};
    if (begin > 0) more.insert(more.end(), {"--resume", checkpoint_of(from, begin)});
    start(run, run, more);
  }
  // From here on one rank computes in the start's type, too, until the last step.
  void begin_reference(const ChainStart& of, int begin) {
    const std::string run = fmt::format("one{}-{}", chains_, begin);
    layouts_[run] = {1,
                     {"batch.micro=4",
                      fmt::format("precision.compute={}", config::name_of(of.compute))}};
    start(run, run,
          begin == 0 ? Arguments{}
                     : Arguments{"--resume", checkpoint_of(reference_, begin)});
    reference_ = run;
  }
  static double tolerance_of(config::Precision compute) {
    switch (compute) {
      case config::Precision::fp32:
        return kTolerance;
      // In bf16 layouts were at most 5e-4 apart. A run whose learning rate is halved at
      // a checkpoint differs by 3e-3 or more, and would fail.
      case config::Precision::bf16:
        return 1e-3;
      case config::Precision::fp16:
        return 2e-4;  // they were at most 6e-5 apart
    }
    return 0.0;
  }
  ckpt::TrainingState state_after(const std::string& run, int step) const {
    return ckpt::CheckpointReader(scratch_ / checkpoint_of(run, step)).state();
  }
  void expect_state_of_reference(const std::string& run, int step) const {
    const ckpt::TrainingState want = state_after(reference_, step),
                              got = state_after(run, step);
    EXPECT_EQ(got.skipped_steps, want.skipped_steps);
    EXPECT_EQ(got.loss_scale, want.loss_scale);
    EXPECT_EQ(got.loss_scale_steps, want.loss_scale_steps);
    EXPECT_EQ(got.numbers, want.numbers);
  }

  int chains_ = 0;         // that were run in this scratch directory
  std::string reference_;  // the run of one rank that the steps here are held against
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_KIND_CHAINS_HPP_

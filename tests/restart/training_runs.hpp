// tests/restart/training_runs.hpp — trainings of a small GPT by the program itself, each
// start a process of its own, and what two of them are compared by: every tensor and
// number of their last checkpoints, bit by bit, and the record of every step.
#ifndef TRIREME_TESTS_RESTART_TRAINING_RUNS_HPP_
#define TRIREME_TESTS_RESTART_TRAINING_RUNS_HPP_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "ckpt/directory.hpp"
#include "ckpt/reader.hpp"
#include "report/metrics.hpp"
#include "support/run_binary.hpp"
#include "unit/data/fixtures.hpp"

namespace trireme::test {

class TrainingRuns : public ::testing::Test {
 protected:
  using Arguments = std::vector<std::string>;

  // Dropout, three micro-batches a step, epochs of 20 samples (5 steps end within the
  // second, 13 within the fourth), validation and samples of text between the steps.
  TrainingRuns() {
    const std::string text = io::read_file(fixture("sample.txt")).substr(0, 1150);
    make_corpus(scratch_, "corpus.h5", {text}, trained_tokenizer());
    write_deck("deck.yaml", 13);
  }

  void write_deck(const std::string& name, int steps, const std::string& more = "") {
    spill(scratch_ / name,
          "model: {layers: 2, hidden: 24, heads: 4, sequence: 16, "
          "dropout: 0.1, attention_dropout: 0.1}\n"
          "data: {train: corpus.h5, split: [0.8, 0.2, 0.0], mask_eod_loss: true}\n"
          "batch: {micro: 2, global: 6}\n"
          "optimizer: {lr: 2.0e-3, schedule: cosine, warmup: 3, decay: " +
              std::to_string(steps) +
              "}\n"
              "run: {steps: " +
              std::to_string(steps) +
              ", seed: 7, log_every: 1, validate_every: 4, sample_every: 6}\n"
              "checkpoint: {every: 5, keep: 0}\n" +
              more);
  }

  // One start, in the scratch directory.
  RunResult train(const std::string& run, const Arguments& more = {},
                  const std::string& deck = "deck.yaml", int threads = 1) const {
    Arguments arguments = {"train", deck, "--run-dir", run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme(arguments, options(threads));
  }
  RunOptions options(int threads) const {
    return {.environment = {{"OMP_NUM_THREADS", std::to_string(threads)}},
            .directory = scratch_.path().string()};
  }

  io::Path newest(const std::string& run) const {
    return ckpt::require_newest(scratch_ / run);
  }
  static std::size_t shards_of(const io::Path& checkpoint) {
    return ckpt::read_manifest(checkpoint).files.size() - 1;  // and the index
  }
  report::MetricsLog metrics(const std::string& run) const {
    return report::read_metrics(scratch_ / run / "train.jsonl");
  }

  // Weights, optimizer state, progress: bit by bit. A start validates at its own last
  // step, so that in the middle of another only the best loss may differ.
  enum class Place { end, middle };
  static void expect_same_checkpoint(const io::Path& a, const io::Path& b,
                                     Place place = Place::end) {
    const ckpt::CheckpointReader first(a), second(b);
    std::set<std::string> groups;
    const auto& tensors = first.manifest().tensors;
    ASSERT_EQ(second.manifest().tensors.size(), tensors.size());
    for (const ckpt::TensorEntry& tensor : tensors) {
      for (const char* group : {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"}) {
        if (tensor.name.starts_with(std::string(group) + "/")) groups.insert(group);
      }
      const std::vector<float> mine = first.read_whole(tensor.name);
      const std::vector<float> theirs = second.read_whole(tensor.name);
      ASSERT_EQ(mine.size(), theirs.size()) << tensor.name;
      EXPECT_EQ(std::memcmp(mine.data(), theirs.data(), mine.size() * sizeof(float)), 0)
          << tensor.name << " differs between " << a << " and " << b;
    }
    for (const char* group : {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"}) {
      EXPECT_EQ(groups.count(group), 1u) << group;
    }
    ckpt::TrainingState one = first.state(), other = second.state();
    one.deck = other.deck = "";  // they name different directories
    one.run = other.run = "";    // and are two runs
    for (ckpt::TrainingState* state : {&one, &other}) {
      state->texts.erase("report_account");  // that of their times
    }
    if (place == Place::middle) {
      one.best_loss = other.best_loss;
      one.best_step = other.best_step;
    }
    EXPECT_TRUE(one == other) << "states of " << a << " and " << b;
  }

  // Steps 1 to `steps`, each once, with the same numbers (but times) in both.
  void expect_same_metrics(const std::string& a, const std::string& b, int steps) const {
    const report::MetricsLog one = metrics(a), other = metrics(b);
    EXPECT_EQ(one.unreadable_lines + other.unreadable_lines, 0);
    ASSERT_EQ(one.steps.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(other.steps.size(), one.steps.size());
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(one.steps[i].step, static_cast<std::int64_t>(i + 1));
      EXPECT_EQ(numbers(other.steps[i]), numbers(one.steps[i])) << "step " << i + 1;
    }
    // One more validation ends a start that was told to do fewer steps.
    for (const report::ValidationRecord& record : one.validations) {
      const auto same = [&](const report::ValidationRecord& that) {
        return that.step == record.step && that.loss == record.loss;
      };
      EXPECT_EQ(std::count_if(other.validations.begin(), other.validations.end(), same),
                1)
          << "validation at step " << record.step;
    }
  }

  Scratch scratch_;

 private:
  static std::vector<double> numbers(const report::StepRecord& record) {
    return {static_cast<double>(record.step),
            record.loss,
            record.loss_mean,
            std::isnan(record.grad_norm) ? -1.0 : record.grad_norm,  // of a step left out
            record.lr,
            static_cast<double>(record.samples),
            static_cast<double>(record.tokens),
            static_cast<double>(record.skipped)};
  }
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_TRAINING_RUNS_HPP_

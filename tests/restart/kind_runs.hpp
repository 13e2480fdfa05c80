// tests/restart/kind_runs.hpp — runs of small BERTs and T5s by the program in several
// layouts, and what goes on from their checkpoints in the same layout and in others: to
// the bit, and with the losses of one rank that never stopped.
#ifndef TRIREME_TESTS_RESTART_KIND_RUNS_HPP_
#define TRIREME_TESTS_RESTART_KIND_RUNS_HPP_

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/sentence_piece_library.hpp"
#include "restart/layout_runs.hpp"

namespace trireme::test {

// What a run trains: keys of a deck's model, and of its data.
struct RestartedModel {
  const char* name;
  const char* model;
  const char* data = "";

  bool is_t5() const { return std::string(model).starts_with("kind: t5"); }
  // A T5's corpus has tokens of SentencePiece.
  bool can_be_trained() const { return !is_t5() || data::has_sentence_piece(); }
};
// Padded samples with pairs of segments, and norms before the branches or behind the
// sums; packed samples without pairs.
inline constexpr RestartedModel kBert{"Bert", "kind: bert, layers: 4"};
inline constexpr RestartedModel kPostNormBert{
    "PostNormBert", "kind: bert, layers: 4, norm_placement: post"};
inline constexpr RestartedModel kPackedBert{
    "PackedBert", "kind: bert, layers: 4, binary_head: false",
    ", pack: true, reset_attention_mask: true, reset_position_ids: true"};
// v1.0, and v1.1: gated, and with a head of its own.
inline constexpr RestartedModel kT5{
    "T5", "kind: t5, layers: 2, decoder_layers: 2, head_size: 8"};
inline constexpr RestartedModel kT5WithItsOwnHead{
    "T5WithItsOwnHead",
    "kind: t5, layers: 2, decoder_layers: 2, head_size: 8, activation: geglu_tanh, "
    "tie_embeddings: false"};

class KindRuns : public LayoutRuns {
 protected:
  static constexpr int kSteps = 8, kEvery = 3;  // checkpoints after steps 3, 6 and 8
  static constexpr double kTolerance = 5e-6;    // of the loss
  // In bf16 layouts were at most 5e-4 apart. A run whose learning rate is halved at the
  // checkpoint differs by 3e-3 or more, and would fail.
  static constexpr double kBf16Tolerance = 1e-3;
  static constexpr double kFp16Tolerance = 2e-4;  // they were at most 6e-5 apart

  // The corpus and the deck of all runs that follow, and keys for all of them.
  void prepare(const RestartedModel& of, const Arguments& keys = {}) {
    const std::string corpus = of.is_t5() ? "t5.h5" : "bert.h5";
    if (!std::filesystem::exists(scratch_ / corpus)) {
      if (of.is_t5()) {
        tokenize_for_t5(corpus);
      } else {
        tokenize_for_bert(corpus);
      }
    }
    spill(scratch_ / "kind.yaml",
          fmt::format("model: {{{}, hidden: 24, heads: 4, sequence: 32, dropout: 0.1, "
                      "attention_dropout: 0.1}}\n"
                      "data: {{train: {}, split: [0.8, 0.2, 0.0]{}}}\n"
                      "batch: {{micro: 1, global: 4}}\n"
                      "optimizer: {{lr: 2.0e-3, schedule: cosine, warmup: 3, decay: 8}}\n"
                      "run: {{steps: {}, seed: 7, log_every: 1, validate_every: 4, "
                      "validate_samples: 8}}\n"
                      "checkpoint: {{every: {}, keep: 0}}\n",
                      of.model, corpus, of.data, kSteps, kEvery));
    deck_ = "kind.yaml";
    keys_ = keys;
    layouts_ = layouts_of(of);
  }

  // Every value of an axis that a restart could stumble over is in one of these: what
  // data ranks share (nothing, 0, 1, 2, 3), tensor ranks with and without parts of the
  // sequence, stages of one chunk and of two, each schedule and each way to recompute.
  // Those of eight ranks, which alone have gpipe and zero: 0, are for tests that may take
  // long.
  static std::map<std::string, Layout> layouts_of(const RestartedModel& of) {
    std::map<std::string, Layout> layouts = {
        {"one", {1, {}}},
        {"tensor",
         {4,
          {"parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2",
           "parallel.schedule=zero_bubble"}}},
        {"chunks",
         {4, {"parallel.pipeline=2", "parallel.virtual_pipeline=2", "parallel.zero=1"}}},
        {"zero2", {2, {"parallel.zero=2", "memory.recompute=full"}}},
        {"zero3", {2, {"parallel.zero=3", "memory.recompute=selective"}}},
        {"stages", {3, {"parallel.pipeline=3", "parallel.stages=[1, 2, 1]"}}},
        {"eight",
         {8,
          {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2",
           "parallel.zero=0", "parallel.schedule=gpipe"}}}};
    if (!of.is_t5()) return layouts;
    // A stage for each stack, and one for each layer.
    layouts["tensor"].keys.push_back("parallel.split=1");
    layouts["stages"] = {4, {"parallel.pipeline=4"}};
    return layouts;
  }

  // A run in the layout, of its name.
  void train_whole(const std::string& layout) const { start(layout, layout); }
  // A run in a layout that goes on from where another was after so many steps; its name.
  std::string go_on(const std::string& from, int step, const std::string& layout) const {
    const std::string run = from + "-" + layout;
    start(run, layout, {"--resume", checkpoint_of(from, step)});
    return run;
  }
  // Of a run, after so many steps; below the scratch directory.
  static std::string checkpoint_of(const std::string& run, int step) {
    return fmt::format("{}/checkpoints/step_{:08}", run, step);
  }

  // In the same layout to the bit what never stopped.
  void expect_same_again(const std::string& layout) const {
    SCOPED_TRACE(layout);
    const std::string rest = go_on(layout, kEvery, layout);
    expect_same_checkpoint(newest(layout), newest(rest));
  }
  void expect_losses_of(const std::string& whole, const std::string& run, int begin,
                        double tolerance = kTolerance) const {
    LayoutRuns::expect_losses_of(whole, kSteps, run, begin, tolerance);
  }

 private:
  void tokenize(const std::string& corpus, const Arguments& more) const {
    Arguments arguments = {"tokenize",    fixture("sample.txt").string(),
                           "--documents", "blank-line",
                           "--out",       corpus};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme(arguments, options(1));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  void tokenize_for_bert(const std::string& corpus) const {
    tokenize(corpus, {"--tokenizer", fixture("uncased").string(), "--sentences", "en"});
  }
  void tokenize_for_t5(const std::string& corpus) const {
    std::filesystem::create_directory(scratch_ / "t5");
    std::filesystem::copy(fixture("unigram.model"), scratch_ / "t5" / "spiece.model");
    spill(scratch_ / "t5" / "tokenizer_config.json", R"({"extra_ids": 100})");
    tokenize(corpus, {"--tokenizer", "t5"});
  }
};

}  // namespace trireme::test

#endif  // TRIREME_TESTS_RESTART_KIND_RUNS_HPP_

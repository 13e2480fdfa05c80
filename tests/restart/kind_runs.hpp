// tests/restart/kind_runs.hpp — runs of small BERTs and T5s by the program in some
// layouts, and what goes on from their checkpoints: in the same layout to the bit, in
// others with the losses of one rank that never stopped.
#ifndef TRIREME_TESTS_RESTART_KIND_RUNS_HPP_
#define TRIREME_TESTS_RESTART_KIND_RUNS_HPP_

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "data/sentence_piece_library.hpp"
#include "restart/layout_runs.hpp"

namespace trireme::test {

// What a run trains: keys of a deck's model, and of its data.
struct RestartedModel {
  const char* name;
  const char* model;
  const char* data = "";
  double first_scale = 0x1p19;  // of the loss in fp16: gradients overflow

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
    ", pack: true, reset_attention_mask: true, reset_position_ids: true", 0x1p22};
// v1.0, and v1.1: gated, and with a head of its own.
inline constexpr RestartedModel kT5{
    "T5", "kind: t5, layers: 2, decoder_layers: 2, head_size: 8", "", 0x1p22};
inline constexpr RestartedModel kT5WithItsOwnHead{
    "T5WithItsOwnHead",
    "kind: t5, layers: 2, decoder_layers: 2, head_size: 8, activation: geglu_tanh, "
    "tie_embeddings: false",
    "", 0x1p22};

class KindRuns : public LayoutRuns {
 protected:
  static constexpr int kSteps = 8, kEvery = 3;  // checkpoints after steps 3, 6 and 8
  static constexpr double kTolerance = 5e-6;    // of the loss

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
    layouts_ = {
        {"one", {1, {}}},
        {"chunks",
         {4, {"parallel.pipeline=2", "parallel.virtual_pipeline=2", "parallel.zero=1"}}},
        {"zero3", {2, {"parallel.zero=3", "memory.recompute=selective"}}}};
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
  void expect_losses_of(const std::string& whole, const std::string& run,
                        int begin) const {
    LayoutRuns::expect_losses_of(whole, kSteps, run, begin, kTolerance);
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

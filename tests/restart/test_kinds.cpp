// BERT and T5 go on as GPT does: in the same layout to the bit, in another one with the
// losses of one rank that never stopped.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/sentence_piece_library.hpp"
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

class KindsRestart : public TrainingRuns {
 protected:
  static constexpr int kSteps = 8, kStop = 3;

  struct Layout {
    int ranks;
    Arguments keys;
  };

  void tokenize(const std::string& corpus, const Arguments& more) const {
    Arguments arguments = {"tokenize",    fixture("sample.txt").string(),
                           "--documents", "blank-line",
                           "--out",       corpus};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme(arguments, options(1));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  void write_kind(const std::string& model, const std::string& corpus) {
    spill(scratch_ / "kind.yaml",
          "model: {" + model +
              ", hidden: 24, heads: 4, sequence: 32, dropout: 0.1, attention_dropout: "
              "0.1}\ndata: {train: " +
              corpus +
              ", split: [0.8, 0.2, 0.0]}\n"
              "batch: {micro: 1, global: 4}\n"
              "optimizer: {lr: 2.0e-3, schedule: cosine, warmup: 3, decay: 8}\n"
              "run: {steps: 8, seed: 7, log_every: 1, validate_every: 4, "
              "validate_samples: 8}\n"
              "checkpoint: {every: 5, keep: 0}\n");
  }
  void start(const std::string& run, const Layout& layout,
             const Arguments& more = {}) const {
    Arguments arguments = {"train", "kind.yaml", "--run-dir", run};
    for (const std::string& key : layout.keys) {
      arguments.insert(arguments.end(), {"--set", key});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(layout.ranks, arguments, options(1));
    ASSERT_EQ(result.status, 0) << run << ": " << result.err;
  }

  // Each layout stops and goes on, in itself and in the next of the list.
  void expect_restarts(const std::vector<Layout>& layouts) const {
    constexpr double kTolerance = 5e-6;
    const auto name = [](const char* what, std::size_t i) {
      return std::string(what) + std::to_string(i);
    };
    const std::string stop = "run.steps=" + std::to_string(kStop);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      start(name("whole", i), layouts[i]);
      start(name("part", i), layouts[i], {"--set", stop});
      start(name("rest", i), layouts[i], {"--resume", name("part", i)});
      expect_same_checkpoint(newest(name("whole", i)), newest(name("rest", i)));
    }
    const auto expected = metrics("whole0").steps;
    ASSERT_EQ(std::ssize(expected), kSteps);
    for (std::size_t from = 0; from < layouts.size(); ++from) {
      const std::size_t to = (from + 1) % layouts.size();
      const std::string run = name("part", from) + "-" + std::to_string(to);
      SCOPED_TRACE(run);
      start(run, layouts[to], {"--resume", name("part", from)});
      const auto got = metrics(run).steps;
      ASSERT_EQ(std::ssize(got), kSteps - kStop);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double want = expected[i + kStop].loss;
        EXPECT_NEAR(got[i].loss, want, kTolerance * want) << "step " << i + kStop + 1;
      }
    }
  }
};

const std::vector<std::string>& two_by_two() {
  static const std::vector<std::string> keys = {
      "parallel.tensor=2", "parallel.pipeline=2", "parallel.sequence=true"};
  return keys;
}

TEST_F(KindsRestart, OfBert) {
  tokenize("bert.h5", {"--tokenizer", fixture("uncased").string(), "--sentences", "en"});
  write_kind("kind: bert, layers: 4", "bert.h5");
  expect_restarts({{1, {}},
                   {4, two_by_two()},
                   {4, {"parallel.zero=3"}},
                   {2, {"parallel.zero=0", "parallel.tensor=2"}}});
}

TEST_F(KindsRestart, OfBertWithNormsBehindItsSums) {
  tokenize("bert.h5", {"--tokenizer", fixture("uncased").string(), "--sentences", "en"});
  write_kind("kind: bert, layers: 4, norm_placement: post", "bert.h5");
  expect_restarts({{1, {}}, {4, {"parallel.pipeline=2", "parallel.zero=3"}}});
}

TEST_F(KindsRestart, OfT5) {
  if (!data::has_sentence_piece()) GTEST_SKIP() << "a build without SentencePiece";
  std::filesystem::create_directory(scratch_ / "t5");
  std::filesystem::copy(fixture("unigram.model"), scratch_ / "t5" / "spiece.model");
  spill(scratch_ / "t5" / "tokenizer_config.json", R"({"extra_ids": 100})");
  tokenize("t5.h5", {"--tokenizer", "t5"});
  write_kind("kind: t5, layers: 2, decoder_layers: 2, head_size: 8", "t5.h5");
  expect_restarts({{1, {}},
                   {4, {"parallel.pipeline=4"}},
                   {2, {"parallel.pipeline=2", "parallel.virtual_pipeline=2"}},
                   {4,
                    {"parallel.tensor=2", "parallel.sequence=true", "parallel.pipeline=2",
                     "parallel.split=1", "parallel.schedule=zero_bubble"}},
                   {4, {"parallel.pipeline=2", "parallel.zero=3"}}});
}

}  // namespace
}  // namespace trireme::test

// N + M steps in one go are N steps, a restart in a new process, and M steps; what a
// restart may change and what it refuses; a run that is finished.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ResumeTraining : public TrainingRuns {};

TEST_F(ResumeTraining, EqualsOneGo) {
  const auto start = [&](const std::string& run, const Arguments& more = {}) {
    const RunResult result = train(run, more, "deck.yaml", 2);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(start("whole"), HasSubstr("13, 1.25k tokens, 3.9 epochs"));

  // Told to do 5 steps, then all.
  start("parts", {"--set", "run.steps=5"});
  expect_same_checkpoint(newest("parts"), scratch_ / "whole/checkpoints/step_00000005",
                         Place::middle);
  EXPECT_THAT(start("parts", {"--resume", "auto"}),
              AllOf(HasSubstr("run.steps: 5 -> 13"), HasSubstr("5 done before"),
                    Not(HasSubstr("unigram entropy"))));
  expect_same_checkpoint(newest("whole"), newest("parts"));
  expect_same_metrics("whole", "parts", 13);

  // Branched off from a checkpoint of the whole run into another directory.
  start("branch", {"--resume", "whole/checkpoints/step_00000010"});
  expect_same_checkpoint(newest("whole"), newest("branch"));
  EXPECT_EQ(metrics("branch").steps.size(), 3u);
  EXPECT_EQ(metrics("branch").steps.front().step, 11);
}

// Stages and chunks write their layers, the tied embedding once; other pipelines, and one
// rank, go on with it.
TEST_F(ResumeTraining, OfPipelines) {
  const auto start = [&](const std::string& run, int ranks, const Arguments& keys,
                         const Arguments& more = {}) {
    Arguments arguments = {"train", "deck.yaml", "--run-dir",
                           run,     "--set",     "run.sample_every=0"};
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(ranks, arguments, options(1));
    EXPECT_EQ(result.status, 0) << result.err;
  };
  for (const char* layout : {"parallel.virtual_pipeline=1", "parallel.virtual_pipeline=2",
                             "parallel.schedule=zero_bubble"}) {
    SCOPED_TRACE(layout);
    const Arguments keys = {"parallel.pipeline=2", layout};
    Arguments few = keys;
    few.push_back("run.steps=5");
    for (const char* run : {"whole", "parts"})
      std::filesystem::remove_all(scratch_ / run);
    start("whole", 2, keys);
    start("parts", 2, few);
    start("parts", 2, keys, {"--resume", "auto"});
    expect_same_checkpoint(newest("whole"), newest("parts"));
    expect_same_metrics("whole", "parts", 13);
  }
  const auto last_losses = [&](const std::string& run) {
    std::vector<double> losses;
    for (const auto& step : metrics(run).steps) {
      if (step.step > 10) losses.push_back(step.loss);
    }
    return losses;
  };
  const std::vector<double> want = last_losses("whole");
  ASSERT_EQ(want.size(), 3u);
  for (const int stages : {1, 3}) {
    const std::string key = "parallel.pipeline=" + std::to_string(stages);
    start(key, stages, {key}, {"--resume", "whole/checkpoints/step_00000010"});
    const std::vector<double> got = last_losses(key);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i], want[i], 5e-6 * want[i]) << key;
    }
  }
}

// Names are bytes; these are no UTF-8.
TEST_F(ResumeTraining, InDirectoriesOfAnyName) {
  const std::string run = "r\xff'x", elsewhere = "c\xfe \xff";
  const auto start = [&](const Arguments& more) {
    Arguments arguments = {"train", "deck.yaml", "--run-dir",
                           run,     "--set",     "batch.micro=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_on_ranks(2, arguments, options(1));
  };
  const auto steps = [](int steps) {
    return Arguments{"--resume", "auto", "--set", fmt::format("run.steps={}", steps)};
  };
  const RunResult first = start({"--set", "run.steps=5"});
  ASSERT_EQ(first.status, 0) << first.err;
  const RunResult second = start(steps(6));
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(newest(run).filename(), "step_00000006");
  // An older one by its name; what lies beyond it is moved away.
  Arguments older = steps(7);
  older[1] = run + "/checkpoints/step_00000005";
  const RunResult third = start(older);
  ASSERT_EQ(third.status, 0) << third.err;
  EXPECT_TRUE(std::filesystem::exists(
      scratch_ / run / "checkpoints/set_aside/step_00000006/manifest.json"));
  // The deck that is left there is one of the same run.
  Arguments arguments = {"train", run + "/deck.yaml"};
  const Arguments eight = steps(8);
  arguments.insert(arguments.end(), eight.begin(), eight.end());
  const RunResult by_deck = trireme_on_ranks(2, arguments, options(1));
  ASSERT_EQ(by_deck.status, 0) << by_deck.err;
  EXPECT_EQ(newest(run).filename(), "step_00000008");
  EXPECT_EQ(metrics(run).steps.size(), 8u);
  // And as the place of checkpoints, and of another run's weights.
  const RunResult branch = trireme_on_ranks(
      2,
      {"train", "deck.yaml", "--run-dir", "branch", "--init-from", run, "--set",
       "checkpoint.dir=" + elsewhere, "--set", "run.steps=2", "--set", "batch.micro=1"},
      options(1));
  ASSERT_EQ(branch.status, 0) << branch.err;
  EXPECT_TRUE(std::filesystem::exists(scratch_ / elsewhere / "step_00000002"));
}

// It is over the steps since the record before, some of which another start may have
// done.
TEST_F(ResumeTraining, MeanLossesDoNotDependOnStops) {
  const Arguments seldom = {"--set", "run.log_every=4", "--set", "run.steps=8"};
  ASSERT_EQ(train("once", seldom).status, 0);
  Arguments parts = seldom;
  parts.insert(parts.end(), {"--set", "run.stop_after=3", "--resume", "auto"});
  for (int start = 0; start < 3; ++start) ASSERT_EQ(train("parts", parts).status, 0);
  const auto once = metrics("once").steps, in_parts = metrics("parts").steps;
  ASSERT_EQ(once.size(), 2u);
  ASSERT_EQ(in_parts.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(once[i].step, 4 * (static_cast<std::int64_t>(i) + 1));
    EXPECT_EQ(in_parts[i].loss_mean, once[i].loss_mean);
    EXPECT_NE(once[i].loss_mean, once[i].loss);
  }
}

TEST_F(ResumeTraining, FromAnOlderCheckpointCutsWhatCameAfter) {
  ASSERT_EQ(train("run").status, 0);
  const report::MetricsLog before = metrics("run");
  const RunResult again = train("run", {"--resume", "run/checkpoints/step_00000005"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("step_00000010 is beyond step 5: moved to"));
  const report::MetricsLog after = metrics("run");
  ASSERT_EQ(after.steps.size(), before.steps.size());
  for (std::size_t i = 0; i < after.steps.size(); ++i) {
    EXPECT_EQ(after.steps[i].step, before.steps[i].step);
    EXPECT_EQ(after.steps[i].loss, before.steps[i].loss);
    EXPECT_EQ(after.steps[i].grad_norm, before.steps[i].grad_norm);
  }
  expect_same_checkpoint(newest("run"),
                         scratch_ / "run/checkpoints/set_aside/step_00000013");
}

// Looking at a run changes nothing in it: neither validation nor samples of text.
TEST_F(ResumeTraining, DoesNotDependOnValidationAndSamples) {
  ASSERT_EQ(train("whole").status, 0);
  ASSERT_EQ(train("quiet", {"--set", "run.validate_every=0", "--set",
                            "run.sample_every=0", "--set", "checkpoint.every=0"})
                .status,
            0);
  expect_same_checkpoint(newest("whole"), newest("quiet"), Place::middle);
  expect_same_metrics("quiet", "whole", 13);
}

// Documents of one token in samples of one: where the end of a document is all that a
// step looks at, no token counts. It has no loss and a gradient of zero, and moments and
// weights decay as in any other.
TEST_F(ResumeTraining, OverStepsInWhichNoTokenCounts) {
  make_corpus(scratch_, "short.h5", std::vector<std::string>(40, "a"),
              trained_tokenizer());
  spill(scratch_ / "short.yaml",
        "model: {layers: 1, hidden: 8, heads: 2, sequence: 1}\n"
        "data: {train: short.h5, mask_eod_loss: true}\n"
        "batch: {micro: 1, global: 1}\n"
        "optimizer: {lr: 1.0e-2, weight_decay: 0.1, betas: [0.9, 0.95]}\n"
        "run: {steps: 12, log_every: 1, validate_every: 0, sample_every: 0}\n"
        "checkpoint: {every: 1, keep: 0}\n");
  const RunResult whole = train("whole", {}, "short.yaml");
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("loss not known"), Not(HasSubstr("nan"))));

  const std::vector<report::StepRecord> steps = metrics("whole").steps;
  ASSERT_EQ(steps.size(), 12u);
  const auto is_masked = [](const report::StepRecord& step) {
    return std::isnan(step.loss);
  };
  const auto masked = std::ranges::find_if(steps.begin() + 1, steps.end(), is_masked);
  ASSERT_NE(masked, steps.end());
  EXPECT_EQ(masked->grad_norm, 0.0);
  EXPECT_FALSE(std::ranges::all_of(masked, steps.end(), is_masked));

  const auto read = [&](std::int64_t step, const std::string& group) {
    return ckpt::CheckpointReader(scratch_ /
                                  fmt::format("whole/checkpoints/step_{:08}", step))
        .read_whole(group + "/embedding/word/weight");
  };
  const auto before = read(masked->step - 1, "optimizer/exp_avg"),
             after = read(masked->step, "optimizer/exp_avg");
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], 0.9 * before[i], 1e-6 * std::abs(before[i]));
  }
  EXPECT_NE(read(masked->step, "model"), read(masked->step - 1, "model"));

  // A stop right behind it.
  const std::string at = fmt::format("run.stop_after={}", masked->step);
  for (int start = 0; start < 2; ++start) {
    const Arguments last = {"--resume", "auto"};
    ASSERT_EQ(
        train("parts", start == 0 ? Arguments{"--set", at} : last, "short.yaml").status,
        0);
  }
  expect_same_checkpoint(newest("whole"), newest("parts"));
}

class ResumeChanges : public TrainingRuns {
 protected:
  void SetUp() override { ASSERT_EQ(train("run", {"--set", "run.steps=5"}).status, 0); }

  // Status 2, the parts in the message, and the run as it was.
  void expect_refused(const Arguments& changes, const std::vector<std::string>& parts,
                      const std::string& deck = "deck.yaml") {
    const auto state = [&] {
      return slurp(scratch_ / "run/train.jsonl") + slurp(scratch_ / "run/deck.yaml") +
             slurp(scratch_ / "run/environment.json");
    };
    const std::string before = state();
    Arguments arguments = {"--resume", "auto"};
    arguments.insert(arguments.end(), changes.begin(), changes.end());
    const RunResult result = train("run", arguments, deck);
    EXPECT_EQ(result.status, 2) << result.out;
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(state(), before);
    EXPECT_EQ(newest("run").filename(), "step_00000005");
  }
};

TEST_F(ResumeChanges, OfWhatDefinesTheRunAreRefused) {
  expect_refused({"--set", "model.layers=3"},
                 {"model.layers: 3", "--set", "the checkpoint has 2, the deck has 3"});
  expect_refused({"--set", "model.head_size=3"}, {"model.head_size: 3"});
  expect_refused({"--set", "run.seed=8", "--set", "batch.global=8"},
                 {"the deck has 2 errors", "run.seed: 8", "the checkpoint has 7",
                  "batch.global: 8", "the checkpoint has 6, the deck has 8"});
  expect_refused({"--set", "model.dropout=0"}, {"model.dropout: 0"});
  expect_refused({"--set", "data.mask_eod_loss=false"}, {"data.mask_eod_loss: false"});
  expect_refused({"--set", "optimizer.weight_decay=0"}, {"optimizer.weight_decay: 0"});
  // The learning rate by the deck: its line is named.
  std::string deck = slurp(scratch_ / "deck.yaml");
  deck.replace(deck.find("2.0e-3"), 6, "3.0e-3");
  spill(scratch_ / "changed.yaml", deck);
  expect_refused(
      {},
      {"optimizer.lr: 0.003   (changed.yaml:4)",
       "the checkpoint has 0.002, the deck has 0.003", "--set optimizer.lr=0.003"},
      "changed.yaml");
}

// As a job has them that stages them in a directory of its own.
TEST_F(ResumeChanges, OfTheCorporasPathsAreTaken) {
  namespace fs = std::filesystem;
  std::string deck = slurp(scratch_ / "deck.yaml");
  deck.replace(deck.find("train: corpus.h5"), 16, "train: $STAGED/corpus.h5");
  spill(scratch_ / "staged.yaml", deck);
  for (const char* job : {"one", "two"}) {
    fs::create_directory(scratch_ / job);
    fs::copy_file(scratch_ / "corpus.h5", scratch_ / job / "corpus.h5");
  }
  fs::remove(scratch_ / "corpus.h5");
  const auto start = [&](const std::string& job, const std::string& steps) {
    RunOptions of_job = options(1);
    of_job.environment["STAGED"] = job;
    return trireme({"train", "staged.yaml", "--run-dir", "run", "--resume", "auto",
                    "--set", "run.steps=" + steps},
                   of_job);
  };
  const RunResult one = start("one", "6");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("data.train: corpus.h5 -> one/corpus.h5"));
  const RunResult two = start("two", "7");
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_THAT(two.out, HasSubstr("data.train: one/corpus.h5 -> two/corpus.h5"));
  EXPECT_EQ(newest("run").filename(), "step_00000007");
  const RunResult finished = start("one", "7");
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("nothing to train"));
}

TEST_F(ResumeChanges, OfCorporaAtOtherPathsAreRefused) {
  const std::string text = io::read_file(fixture("sample.txt")).substr(1150, 1150);
  make_corpus(scratch_, "other.h5", {text}, trained_tokenizer());
  expect_refused(
      {"--set", "data.train=other.h5"},
      {"data.train: other.h5", "the checkpoint has corpus.h5, the deck has other.h5"});
  expect_refused({"--set", "data.train=[{path: corpus.h5, weight: 2}]"},
                 {"data.train: ", "the checkpoint has corpus.h5"});
}

// The same name and vocabulary, another text.
TEST_F(ResumeChanges, OfTheCorpusBehindTheNameAreRefused) {
  const std::string text = io::read_file(fixture("sample.txt")).substr(1150, 1150);
  make_corpus(scratch_, "corpus.h5", {text}, trained_tokenizer());
  expect_refused({}, {"not those that", "step_00000005", "their checksums are",
                      "start a new run in another run.dir"});
}

TEST_F(ResumeChanges, OfTheLearningRateBySetAreSaid) {
  const RunResult result = train(
      "run", {"--resume", "auto", "--set", "optimizer.lr=1e-3", "--set", "run.steps=7"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("changed since the checkpoint:"),
                                HasSubstr("optimizer.lr: 0.002 -> 0.001"),
                                HasSubstr("optimizer.min_lr: 0.0002 -> 0.0001"),
                                HasSubstr("run.steps: 5 -> 7")));
  EXPECT_LT(metrics("run").steps.at(5).lr, 1e-3);
  EXPECT_GT(metrics("run").steps.at(4).lr, 1.7e-3);
}

TEST_F(ResumeChanges, OfMicroBatchesKeepTheResult) {
  ASSERT_EQ(train("run", {"--resume", "auto", "--set", "batch.micro=3"}).status, 0);
  ASSERT_EQ(train("whole").status, 0);
  const auto changed = metrics("run").steps, expected = metrics("whole").steps;
  ASSERT_EQ(changed.size(), 13u);
  for (std::size_t i = 0; i < 13; ++i) {
    EXPECT_NEAR(changed[i].loss, expected[i].loss, 5e-6 * expected[i].loss) << i;
  }
}

// A decay that was not given follows run.steps: no change of its own.
TEST_F(ResumeChanges, OfTheNumberOfSteps) {
  std::string deck = slurp(scratch_ / "deck.yaml");
  deck.replace(deck.find(", decay: 13"), 11, "");
  spill(scratch_ / "open.yaml", deck);
  ASSERT_EQ(train("open", {"--set", "run.steps=5"}, "open.yaml").status, 0);
  const RunResult longer =
      train("open", {"--resume", "auto", "--set", "run.steps=8"}, "open.yaml");
  ASSERT_EQ(longer.status, 0) << longer.err;
  EXPECT_THAT(longer.out, AllOf(HasSubstr("run.steps: 5 -> 8"),
                                HasSubstr("optimizer.decay: 5 -> 8")));
  EXPECT_EQ(metrics("open").steps.size(), 8u);
}

TEST_F(ResumeTraining, OfAFinishedRunSaysSo) {
  ASSERT_EQ(train("run", {"--set", "run.steps=5"}).status, 0);
  const std::string records = slurp(scratch_ / "run/train.jsonl");
  const std::string surroundings = slurp(scratch_ / "run/environment.json");
  const RunResult again = train("run", {"--resume", "auto", "--set", "run.steps=5"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(
      again.out,
      AllOf(HasSubstr("nothing to train"), ::testing::ContainsRegex("of\\s+step 5"),
            HasSubstr("run.steps is 5"), HasSubstr("--set run.steps=10")));
  EXPECT_EQ(slurp(scratch_ / "run/train.jsonl"), records);
  EXPECT_EQ(slurp(scratch_ / "run/environment.json"), surroundings);
}

}  // namespace
}  // namespace trireme::test

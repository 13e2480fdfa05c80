// Everything that is wrong with a start comes in one list: in the deck, for what this
// version trains, in the corpora, and in the checkpoint that is to be gone on from; what
// only follows from another error does not.
#include <nlohmann/json.hpp>
#include <set>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::Not;

using Keys = std::set<std::string>;

class DeckCheck : public Workplace {
 protected:
  DeckCheck() {  // these tests may themselves run in a job
    for (const char* name : {"SLURM_TMPDIR", "SLURM_JOB_ID"}) ::unsetenv(name);
  }
  // A deck of many lines, with two corpora for training.
  fs::path long_deck(const std::string& model, const std::string& more) const {
    const fs::path path = scratch_ / "long.yaml";
    spill(path, "model: {layers: 2, hidden: 32, heads: 4, sequence: 16" + model +
                    "}\n"
                    "run: {steps: 4, dir: " +
                    run_dir().string() + "}\n" + more);
    return path;
  }
  // Of a dry run of the small deck: key, place and the rest of all errors.
  nlohmann::json errors_of(const std::vector<std::string>& overrides,
                           std::vector<std::string> options = {}) const {
    const fs::path file = scratch_ / "errors.json";
    options.insert(options.end(), {"--dry-run", "--json", file});
    const RunResult result = train(overrides, options);
    EXPECT_EQ(result.status, 2) << result.out;
    return nlohmann::json::parse(slurp(file))["errors"];
  }
  static Keys keys_of(const nlohmann::json& errors) {
    Keys keys;
    for (const auto& error : errors) {
      EXPECT_TRUE(keys.insert(error["key"]).second) << error["key"] << " comes twice";
    }
    return keys;
  }
  Keys keys(const std::vector<std::string>& overrides,
            const std::vector<std::string>& options = {}) const {
    return keys_of(errors_of(overrides, options));
  }
};

// A schedule that cannot be, a value that is not trained yet, corpora that are missing,
// none, or of another tokenizer, and a checkpoint that is not there.
TEST_F(DeckCheck, OneRound) {
  const fs::path other = make_corpus(scratch_.path(), "other.h5", 270, 600);
  spill(scratch_ / "text.h5", "text");
  const fs::path deck = long_deck(", norm: rmsnorm",
                                  "optimizer: {warmup: 4}\n"      // line 3
                                  "precision: {compute: bf16}\n"  // line 4
                                  "data:\n"                       // line 5
                                  "  train:\n"                    // line 6
                                  "    - {path: " +
                                      corpus().string() +
                                      ", weight: 1}\n"  // line 7
                                      "    - {path: none.h5, weight: 2}\n"
                                      "  validation:\n"
                                      "    other: " +
                                      other.string() +
                                      "\n"  // line 10
                                      "    text: " +
                                      (scratch_ / "text.h5").string() + "\n");
  const std::vector<std::string> arguments = {"train", deck, "--init-from", "nowhere"};
  RunResult result = trireme(arguments);
  expect_refusal(
      result,
      {"the deck and the options have 6 errors",
       "optimizer.warmup: 4   (" + deck.string() + ":3)",
       "model.norm: rmsnorm   (" + deck.string() + ":1)",
       "data.train: none.h5   (" + deck.string() + ":8)",
       "does not exist (paths are relative to the working directory, '",
       "data.validation.other: " + other.string() + "   (" + deck.string() + ":10)",
       "was not made with the tokenizer of '" + corpus().string(), "270", "300",
       "data.validation.text: ", deck.string() + ":11)", "is not an HDF5 file",
       "--init-from: nowhere\n    there is no checkpoint 'nowhere'"});
  EXPECT_FALSE(fs::exists(run_dir()));
  // The same list on two ranks, once.
  const RunResult together = trireme_on_ranks(2, arguments);
  expect_refusal(together, {"6 errors"});
  EXPECT_EQ(together.err, result.err);
}

// An unknown key that resembles none hid what this version cannot train.
TEST_F(DeckCheck, AnUnknownKeyHidesNothing) {
  expect_refusal(train({"run.foo=3", "model.bias=false", "data.train=none.h5"}),
                 {"3 errors", "run.foo", "model.bias", "data.train: none.h5"});
}

// What is known of a deck whose text cannot be read: what the options name.
TEST_F(DeckCheck, OfATextThatIsNoDeck) {
  spill(scratch_ / "tab.yaml", "model:\n\tlayers: 4\n");
  expect_refusal(trireme({"train", scratch_ / "tab.yaml", "--resume", "nowhere", "--set",
                          "data.train=none.h5"}),
                 {"the deck and the options have 3 errors", "tab.yaml:2",
                  "data.train: none.h5   (--set)", "--resume: nowhere"});
}

TEST_F(DeckCheck, WhatFollowsIsNotSaid) {
  // Without hidden there is no width of the feed-forward block, and no tensors.
  EXPECT_EQ(keys({"model.hidden=wide", "parallel.tensor=3", "model.heads=3"}, {}),
            (Keys{"model.hidden"}));
  // No steps: no end of the schedule; the batch is wrong by itself.
  EXPECT_EQ(keys({"run.steps=some", "batch.micro=3"}),
            (Keys{"run.steps", "batch.global"}));
  // The parts of a corpus that is too short are too short.
  EXPECT_EQ(keys({"model.sequence=100000"}), (Keys{"data.train"}));
  // What is trained on nothing has no vocabulary of it.
  expect_refusal(train({"data.train=none"}), {"1 error", "names no corpus"});
  // A misspelt section.
  spill(scratch_ / "section.yaml", "modle: {layers: 2, hidden: 32}\n");
  expect_refusal(trireme({"train", scratch_ / "section.yaml"}),
                 {"2 errors", "modle", "data.train"});
}

// The vocabulary of the corpus is judged like one that is given.
TEST_F(DeckCheck, OfTheVocabularyOfTheCorpus) {
  const auto errors = errors_of({"parallel.tensor=512", "model.heads=512",
                                 "model.hidden=512", "parallel.data=1", "batch.micro=3"},
                                {"--ranks", "512"});
  EXPECT_EQ(keys_of(errors), (Keys{"batch.global", "model.vocab"}));
  EXPECT_EQ(errors[1]["value"], "300");
  EXPECT_THAT(errors[1]["what"].get<std::string>(), HasSubstr("parallel.tensor (512)"));
}

// A dry run goes without corpora and existing runs; what is there and wrong, it says.
TEST_F(DeckCheck, OfADryRun) {
  ASSERT_EQ(train().status, 0);
  const std::vector<std::string> far = {"data.train=none.h5", "model.vocab=300"};
  EXPECT_EQ(train(far, {"--dry-run"}).status, 0);
  EXPECT_EQ(train({}, {"--dry-run", "--resume", "auto"}).status, 0);
  EXPECT_EQ(train({}, {"--dry-run", "--init-from", run_dir()}).status, 0);
  EXPECT_EQ(keys({}, {"--resume", "nowhere"}), (Keys{"--resume"}));
  EXPECT_EQ(keys({}, {"--init-from", "nowhere"}), (Keys{"--init-from"}));
  EXPECT_EQ(keys({"data.train=none.h5"}), (Keys{"data.train"}));
}

// Keys that define the run, of the deck that goes on with it; a default that follows one
// of them is not told apart from it.
TEST_F(DeckCheck, OfTheRunThatIsGoneOnWith) {
  ASSERT_EQ(train().status, 0);
  const std::vector<std::string> resume = {"--resume", "auto"};
  const std::vector<std::string> changed = {"model.hidden=64", "model.dropout=0.2",
                                            "run.seed=3"};
  const Keys wanted = {"model.hidden", "model.dropout", "run.seed"};
  EXPECT_EQ(keys(changed, resume), wanted);
  expect_refusal(train(changed, resume), {"3 errors", "model.hidden", "run.seed",
                                          "the checkpoint has 32, the deck has 64"});
  // Beside errors of other kinds, one of them in a key that the checkpoint has, too.
  std::vector<std::string> more = changed;
  more.insert(more.end(), {"optimizer.lr=fast", "optimizer.eps=1e-6", "batch.micro=3"});
  const RunResult result = train(more, resume);
  expect_refusal(result, {"6 errors", "optimizer.lr", "optimizer.eps", "batch.global",
                          "the checkpoint has 1e-08, the deck has 1e-06"});
  EXPECT_THAT(result.err, Not(HasSubstr("min_lr")));
  // Job scripts go on by themselves.
  expect_refusal(
      trireme({"jobscript", deck(), "--machine", "cpu", "--nodes", "1", "--time", "1h",
               "--set", "batch.global=64", "--set", "run.seed=3"}),
      {"2 errors", "run.seed", "batch.global", "the checkpoint has 4"});
  // An existing run is a mistake of who trains, and comes with the others.
  expect_refusal(train({"batch.micro=3"}),
                 {"2 errors", "batch.global", "run.dir", "holds a run already"});
}

// Both by the files that are there, with no error in the deck itself.
TEST_F(DeckCheck, ARunThatIsThereAndACheckpointThatIsNot) {
  ASSERT_EQ(train().status, 0);
  const std::vector<std::string> nowhere = {"--init-from", "nowhere"};
  const std::vector<std::string> both = {
      "the deck and the options have 2 errors", "run.dir: ", "holds a run already",
      "--init-from: nowhere\n    there is no checkpoint 'nowhere'"};
  expect_refusal(train({}, nowhere), both);
  std::vector<std::string> arguments = train_arguments({"parallel.data=2"}, nowhere);
  expect_refusal(trireme_on_ranks(2, arguments), both);
  // Another model's weights, and a run of another deck that is not gone on with.
  ASSERT_EQ(train({"model.ffn_hidden=64"}, {"--run-dir", scratch_ / "other"}).status, 0);
  expect_refusal(train({}, {"--init-from", scratch_ / "other"}),
                 {"2 errors", "holds a run already", "checkpoint of another model"});
  expect_refusal(
      train({"run.seed=3"}, {"--resume", scratch_ / "other"}),
      {"3 errors", "is not one of its checkpoints", "run.seed", "model.ffn_hidden"});
  // Alone it is said as ever.
  const RunResult alone = train();
  expect_refusal(alone, {"holds a run already"});
  EXPECT_THAT(alone.err, Not(HasSubstr("1 error")));
}

// What a job will have is not looked at on the machine that writes its script.
TEST_F(DeckCheck, PathsOfAJob) {
  const std::vector<std::string> sets = {"data.train=$SLURM_TMPDIR/c.h5",
                                         "run.dir=runs/$SLURM_JOB_ID", "model.vocab=300",
                                         "batch.global=64"};
  const fs::path file = scratch_ / "dry.json";
  const RunResult dry = train(sets, {"--dry-run", "--json", file});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("not checked, as $SLURM_TMPDIR is set only inside a "
                                 "job: data.train:\n  $SLURM_TMPDIR/c.h5\n"));
  EXPECT_THAT(dry.out, HasSubstr("not checked, as $SLURM_JOB_ID is set only inside a "
                                 "job: run.dir:\n  runs/$SLURM_JOB_ID\n"));
  EXPECT_EQ(nlohmann::json::parse(slurp(file))["not_checked"],
            nlohmann::json::array(
                {"data.train: $SLURM_TMPDIR/c.h5", "run.dir: runs/$SLURM_JOB_ID"}));
  std::vector<std::string> job = {"jobscript", deck(), "--machine", "cpu",
                                  "--nodes",   "1",    "--time",    "1h"};
  for (const std::string& set : sets) job.insert(job.end(), {"--set", set});
  const RunResult script = trireme(job);
  EXPECT_EQ(script.status, 0) << script.err;
  EXPECT_THAT(script.out, HasSubstr("--set 'data.train=$SLURM_TMPDIR/c.h5'"));
  EXPECT_THAT(script.err, HasSubstr("$SLURM_TMPDIR is set only inside a job"));
  // Where only that corpus says the vocabulary; and where there should be a job.
  expect_refusal(train({sets[0]}, {"--dry-run"}),
                 {"data.train: $SLURM_TMPDIR/c.h5", "is not known here",
                  "and only it says the vocabulary", "model.vocab: 50257"});
  expect_refusal(train(sets), {"2 errors", "the variable SLURM_TMPDIR, which is not set",
                               "the variable SLURM_JOB_ID, which is not set"});
}

// Tensors of another model, and tokens of another tokenizer.
TEST_F(DeckCheck, OfTheWeightsThatAreBegunWith) {
  ASSERT_EQ(train().status, 0);
  const fs::path other = make_corpus(scratch_.path(), "other.h5", 270, 600);
  const std::vector<std::string> from = {"--init-from", run_dir(), "--run-dir",
                                         scratch_ / "branch"};
  EXPECT_EQ(train({}, from).status, 0);
  std::vector<std::string> dry = from;
  dry.push_back("--dry-run");
  EXPECT_EQ(train({"precision.compute=bf16"}, dry).status, 0);
  const RunResult wide = train({"model.ffn_hidden=64", "batch.micro=3"}, dry);
  expect_refusal(wide, {"2 errors", "batch.global", "--init-from",
                        "is a checkpoint of another model than the deck's",
                        "layers/0/mlp/fc1/weight: the deck makes it (64, 32), the "
                        "checkpoint has (128, 32)"});
  // The embedding has other rows because of the tokenizer alone.
  const RunResult tokens = train({"data.train=" + other.string()}, dry);
  expect_refusal(tokens, {"the options have 1 error", "another tokenizer"});
  // A start that has no error before it reads the checkpoint.
  const RunResult both =
      train({"data.train=" + other.string(), "model.ffn_hidden=64"},
            {"--init-from", run_dir(), "--run-dir", scratch_ / "other"});
  expect_refusal(both, {"the options have 2 errors", "another tokenizer",
                        "layers/0/mlp/fc1/weight: the deck makes it (64, 32)"});
  EXPECT_FALSE(fs::exists(scratch_ / "other"));
}

// A home directory and variables in the deck's paths, and no trace of them in the deck
// that the run leaves.
TEST_F(DeckCheck, PathsAreFilledIn) {
  const fs::path home = scratch_ / "home $x";
  fs::create_directories(home);
  fs::copy_file(corpus(), home / "c.h5");
  spill(scratch_ / "paths.yaml",
        "model: {layers: 2, hidden: 32, heads: 4, sequence: 16}\n"
        "data: {train: ~/c.h5}\n"
        "batch: {micro: 2, global: 4}\n"
        "run:\n"
        "  steps: 2\n"
        "  dir: ${TRIREME_TEST_RUNS}/first\n");
  const fs::path runs = home / "runs";
  const std::string there = scratch_.path().string();
  const RunResult result =
      trireme({"train", "paths.yaml"},
              {.environment = {{"HOME", home.string()}, {"TRIREME_TEST_RUNS", runs}},
               .directory = there});
  ASSERT_EQ(result.status, 0) << result.err;
  const RunResult again = trireme({"train", runs / "first/deck.yaml", "--resume", "auto"},
                                  {.environment = {{"HOME", "/elsewhere"}}});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("nothing to train"));
  expect_refusal(trireme({"train", "paths.yaml"},
                         {.environment = {{"HOME", "/elsewhere"}}, .directory = there}),
                 {"2 errors", "run.dir: ${TRIREME_TEST_RUNS}/first   (paths.yaml:6)",
                  "names the variable TRIREME_TEST_RUNS, which is not set",
                  "data.train: /elsewhere/c.h5   (paths.yaml:2)", "does not exist"});
}

}  // namespace
}  // namespace trireme::test

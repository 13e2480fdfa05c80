// `trireme train` with wrong decks: everything wrong is said at once, with its place,
// what is allowed and the nearest fix, before anything is made.
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class TrainDeck : public Workplace {
 protected:
  // Refused, and no run directory made.
  void expect_refused(const RunResult& result, const std::vector<std::string>& parts) {
    expect_refusal(result, parts);
    EXPECT_FALSE(fs::exists(run_dir()));
  }
  RunResult train_text(const std::string& text) {
    spill(scratch_ / "own.yaml", text);
    return trireme({"train", scratch_ / "own.yaml", "--run-dir", run_dir()});
  }
};

TEST_F(TrainDeck, MisspeltKeysAreCorrected) {
  spill(scratch_ / "own.yaml",
        "model:\n  layers: 2\n  hidden: 32\n  heads: 4\n  sequnce: 16\n"
        "optimiser: {lr: 1e-3}\n");
  expect_refused(
      trireme({"train", scratch_ / "own.yaml", "--run-dir", run_dir()}),
      {"own.yaml:5", "model.sequnce", "model.sequence", "own.yaml:6", "optimizer"});
  expect_refused(train({"run.step=3"}), {"--set", "run.step", "run.steps"});
  expect_refused(train({"run=3"}), {"--set", "run: 3", "section", "run.<key>=value"});
  expect_refused(train({"run.steps"}), {"--set", "run.steps", "key=value"});
}

TEST_F(TrainDeck, WrongTypesAreNamed) {
  expect_refused(train({"model.layers=two", "optimizer.lr=fast", "run.steps=3 weeks",
                        "model.bias=perhaps", "optimizer.schedule=cosin",
                        "optimizer.betas=[0.9]", "model.dropout=1.5"}),
                 {"model.layers", "two", "optimizer.lr", "fast", "run.steps", "3 weeks",
                  "tokens", "model.bias", "perhaps", "optimizer.schedule", "cosine",
                  "optimizer.betas", "2 numbers", "model.dropout", "1.5", "7 errors"});
}

TEST_F(TrainDeck, HeadsMustDivideHidden) {
  expect_refused(train({"model.heads=5"}),
                 {"model.heads", "--set", "does not divide model.hidden (32)",
                  "a divisor of 32", "model.heads: 4", "model.hidden: 30"});
}

TEST_F(TrainDeck, MicroMustDivideGlobal) {
  expect_refused(train({"batch.micro=3"}),
                 {"batch.global", "not a multiple of micro × data = 3 × 1 = 3",
                  "batch.global: 3", "batch.micro: 2"});
}

TEST_F(TrainDeck, AllErrorsComeTogether) {
  const RunResult result =
      train({"model.heads=5", "batch.micro=3", "model.layrs=1", "optimizer.min_lr=1"});
  expect_refused(result, {"model.heads", "batch.global", "model.layers",
                          "optimizer.min_lr", "4 errors"});
}

// Three ranks, once, and every grid that they could make.
TEST_F(TrainDeck, RanksThatNoGridFits) {
  const auto on_three = [&](const std::vector<std::string>& settings) {
    return trireme_on_ranks(3, train_arguments(settings));
  };
  RunResult result = on_three({"parallel.tensor=2", "model.hidden=24", "model.heads=6",
                               "model.ffn_hidden=96", "batch.global=12"});
  expect_refused(result, {"the deck has 1 error", "parallel.data",
                          "3 ranks cannot divide into copies of the model of 2",
                          "start 2 ranks, or take one of the grids of 3 ranks: tensor 1 "
                          "data 3; tensor 3 data 1\n"});
  EXPECT_EQ(result.err.find("parallel.data"), result.err.rfind("parallel.data"));
  // Four heads and four samples: only stages.
  result = on_three({"parallel.tensor=2"});
  expect_refused(result, {"start 2 ranks, or take one of the grids of 3 ranks: tensor 1 "
                          "data 1 pipeline 3\n"});
}

TEST_F(TrainDeck, WhatIsNotThereYetIsSaid) {
  expect_refused(train({"model.norm=rmsnorm", "model.bias=false"}),
                 {"model.norm", "model.bias", "not supported by training yet"});
  expect_refused(train({"parallel.tensor=2"}), {"2 ranks", "tensor 2"});
}

TEST_F(TrainDeck, DecksThatAreNone) {
  expect_refused(trireme({"train", scratch_ / "none.yaml"}),
                 {"none.yaml", "No such file"});
  expect_refused(trireme({"train", scratch_.path()}),
                 {scratch_.path().string(), "directory", "inputs/"});
  expect_refused(train_text(""), {"own.yaml", "empty", "inputs/quickstart.yaml"});
  expect_refused(train_text("model: {layers: 2\ndata: [\n"), {"own.yaml:"});
  expect_refused(train_text("- a\n- b\n"), {"own.yaml", "section"});
  expect_refused(train_text(slurp(corpus())), {"own.yaml"});
  expect_refused(train_text("model: {layers: 2}\n"),
                 {"model.hidden", "model.heads", "model.sequence", "is missing"});
}

// The same words, in a form for programs.
TEST_F(TrainDeck, ErrorsAsJson) {
  const fs::path json = scratch_ / "errors.json";
  expect_refused(train({"model.heads=5"}, {"--dry-run", "--json", json}),
                 {"model.heads"});
  EXPECT_THAT(slurp(json), HasSubstr("\"key\": \"model.heads\""));
  EXPECT_THAT(slurp(json), HasSubstr("a divisor of 32"));
}

TEST_F(TrainDeck, OptionsThatDoNotFit) {
  expect_refusal(trireme({"train"}), {"DECK is required", "trireme train --help"});
  expect_refusal(train({}, {"--ranks", "2"}), {"--ranks", "--dry-run"});
  expect_refusal(train({}, {"--dry-run", "--ranks", "0"}), {"--ranks"});
  expect_refusal(train({}, {"--resum", "auto"}), {"--resum"});
}

}  // namespace
}  // namespace trireme::test

// `trireme evaluate`: against the run's own validation, against a forward pass in numpy,
// on several grids, killed and taken up again, of BERT and T5, and wrong input.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "regression/cli/model_uses.hpp"
#include "regression/cli/small_checkpoint.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class Evaluate : public Workplace {
 protected:
  // A run of a few steps on a corpus of some 9,000 tokens, of which two parts are held
  // out.
  void make_run(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> overrides = {"data.split=[0.8, 0.13, 0.07]",
                                          "optimizer.lr=1e-2", "run.steps=6"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    const RunResult result = train(overrides);
    ASSERT_EQ(result.status, 0) << result.err;
  }
  // The last validation of train.jsonl.
  json validation() const {
    json last;
    std::istringstream lines(slurp(run_dir() / "train.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (record.contains("validation")) last = record["validation"];
    }
    return last;
  }

  RunResult evaluate(std::vector<std::string> arguments, int ranks = 0) const {
    arguments.insert(arguments.begin(), {"evaluate", "--checkpoint", run_dir()});
    return ranks == 0 ? trireme(arguments) : trireme_on_ranks(ranks, arguments);
  }
  // What --json says.
  json result(std::vector<std::string> arguments, int ranks = 0) {
    arguments.insert(arguments.end(), {"--json", scratch_ / "result.json"});
    const RunResult run = evaluate(arguments, ranks);
    EXPECT_EQ(run.status, 0) << run.err;
    out_ = run.out;
    err_ = run.err;
    return run.status == 0 ? json::parse(slurp(scratch_ / "result.json")) : json();
  }
  // The same from numpy, of the tokens [begin, end) of the corpus.
  json reference(std::int64_t begin, std::int64_t end, bool mask, bool tail) const {
    const RunResult run = test::run(
        {"/usr/bin/python3", source_file("tests/regression/cli/reference_evaluation.py"),
         newest(), corpus(), std::to_string(begin), std::to_string(end), "4",
         mask ? "1" : "0", tail ? "1" : "0"});
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out);
  }
  std::int64_t tokens() const {
    const RunResult run =
        trireme({"inspect", corpus(), "--json", scratch_ / "corpus.json"});
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(slurp(scratch_ / "corpus.json"))["tokens"];
  }
  void expect_near(const json& found, const json& wanted, double tolerance) const {
    EXPECT_EQ(found["tokens"], wanted["tokens"]);
    EXPECT_EQ(found["bytes"], wanted["bytes"]);
    const double loss = wanted["loss"];
    EXPECT_NEAR(found["loss"].get<double>(), loss, tolerance * loss);
  }

  std::string out_, err_;
};

// Of BERT and T5, with the vocabularies of the parity fixtures.
class EvaluateKinds : public Evaluate {
 protected:
  // Documents of some 60 words each, by a kind's tokenizer; one for all tests of this
  // executable. BERT's has its sentences.
  static const fs::path& corpus_of(const std::string& kind) {
    static const Scratch place;
    static std::map<std::string, fs::path> made;
    fs::path& path = made[kind];
    if (!path.empty()) return path;
    path = place / (kind + ".h5");
    std::vector<std::string> options;
    if (kind == "bert") options = {"--sentences", "en"};
    make_kind_corpus(kind, path, options);
    return path;
  }
  static TextFiles tokenizer_of(const std::string& kind) {
    return kind == "bert" ? tokenizer_of_bert() : tokenizer_of_t5();
  }
  static void make_kind_corpus(const std::string& kind, const fs::path& path,
                               const std::vector<std::string>& options) {
    make_kind_corpus(kind, path, options, tokenizer_of(kind));
  }
  static void make_kind_corpus(const std::string& kind, const fs::path& path,
                               const std::vector<std::string>& options,
                               const TextFiles& files) {
    std::vector<std::string> all = {"--documents", "blank-line"};
    all.insert(all.end(), options.begin(), options.end());
    make_kind_corpus(path, all, files, words_of_fixtures(kind == "bert"));
  }
  static void make_kind_corpus(const fs::path& path,
                               const std::vector<std::string>& options,
                               const TextFiles& files, const std::string& content) {
    const fs::path tokenizer = path.string() + "-tokenizer";
    fs::create_directory(tokenizer);
    for (const auto& [file, its] : files) spill(tokenizer / file, its);
    const fs::path text = path.string() + ".txt";
    spill(text, content);
    std::vector<std::string> arguments = {"tokenize", "--tokenizer", tokenizer, "--out",
                                          path};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.push_back(text);
    const RunResult result = trireme(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  // Words that both vocabularies have, in lines, as sentences where those are asked for.
  static std::string words_of_fixtures(bool has_sentences) {
    std::string text;
    unsigned state = 1;
    for (int i = 1; i <= 4000; ++i) {
      state = state * 1664525u + 1013904223u;
      const bool begins = has_sentences && i % 7 == 1;
      text += (begins ? "W" : "w") + std::to_string(5 + (state >> 16) % 50);
      text += i % 7 != 0 ? " " : has_sentences ? ".\n" : "\n";
      if (i % 63 == 0) text += "\n";
    }
    return text;
  }

  RunResult train_to_evaluate(const std::string& kind,
                              const std::vector<std::string>& set = {},
                              const std::vector<std::string>& options = {}) const {
    std::vector<std::string> all = {"model.dropout=0.0", "data.split=[0.8, 0.13, 0.07]",
                                    "optimizer.lr=1.0e-2", "run.steps=6"};
    all.insert(all.end(), set.begin(), set.end());
    return train_kind(kind, corpus_of(kind), all, options);
  }
  // The means of each objective, and of all.
  void expect_means(const json& found, const json& wanted, double tolerance) const {
    EXPECT_EQ(found["tokens"], wanted["tokens"]);
    EXPECT_EQ(found.contains("losses"), wanted.contains("losses"));
    json means = wanted.value("losses", json::object());
    means["loss"] = wanted["loss"];
    for (const auto& [name, mean] : means.items()) {
      const json& its = name == "loss" ? found["loss"] : found["losses"][name];
      EXPECT_NEAR(its.get<double>(), mean.get<double>(), tolerance * mean.get<double>())
          << name;
    }
  }
};

TEST_F(Evaluate, IsTheRunsOwnValidation) {
  make_run();
  const json own = validation();
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{},
        {"--split", "validation"},
        {"--data", corpus(), "--split", "validation"}}) {
    const json found = result(how);
    EXPECT_EQ(found["loss"], own["loss"]);  // to the bit
    EXPECT_EQ(found["perplexity"], own["perplexity"]);
    EXPECT_EQ(found["tokens"], own["tokens"]);
    EXPECT_EQ(found["step"], 6);
    EXPECT_EQ(found["results"].size(), 1u);
    EXPECT_EQ(found["results"][0]["loss"], own["loss"]);
    EXPECT_DOUBLE_EQ(found["bits_per_token"].get<double>(),
                     own["loss"].get<double>() / std::log(2.0));
  }
  for (const char* word : {"step_00000006", "(step 6)", "nats per token", "perplexity",
                           "bits per token", "bits per byte", "left out"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
}

// In 16 bits as well, by the products that the run had; and in another type than the
// run's where that is asked for, near to its loss and not equal to it.
TEST_F(Evaluate, InTheTypeOfTrainingOrAnother) {
  make_run({"precision.compute=bf16", "precision.gemm=widened"});
  const json own = validation();
  const json found = result({});
  EXPECT_EQ(found["loss"], own["loss"]);  // to the bit
  EXPECT_EQ(found["compute"], "bf16");
  EXPECT_EQ(found["product_instructions"], "widened");
  EXPECT_THAT(out_, HasSubstr("(step 6) in bf16"));
  const json wide = result({"--set", "precision.compute=fp32"});
  EXPECT_EQ(wide["compute"], "fp32");
  EXPECT_EQ(wide["product_instructions"], "native");
  EXPECT_NE(wide["loss"], own["loss"]);
  EXPECT_NEAR(wide["loss"].get<double>(), own["loss"].get<double>(),
              4e-3 * own["loss"].get<double>());
  for (const char* type : {"bf16", "fp16"}) {
    const json again = result({"--set", std::string("precision.compute=") + type, "--set",
                               "precision.gemm=widened"},
                              2);
    EXPECT_EQ(again["compute"], type);
    EXPECT_NEAR(again["loss"].get<double>(), own["loss"].get<double>(),
                4e-3 * own["loss"].get<double>());
  }
  expect_refusal(evaluate({"--set", "precision.loss_scale.initial=4"}),
                 {"--set precision.loss_scale.initial=4", "precision.compute"});
}

// Sums of one type are not added to those of another.
TEST_F(Evaluate, ResumesNoSumsOfAnotherType) {
  make_run();
  const fs::path file = scratch_ / "progress.json";
  const std::vector<std::string> part = {"--data", corpus(),    "--resume",
                                         file,     "--samples", "41"};
  ASSERT_EQ(evaluate(part).status, 0);
  const std::string kept = slurp(file);
  const std::vector<std::string> narrow = {"--data", corpus(), "--resume",
                                           file,     "--set",  "precision.compute=bf16"};
  expect_refusal(evaluate(narrow), {"progress.json", "another evaluation",
                                    "compute is \"fp32\" there, and \"bf16\" here"});
  EXPECT_EQ(slurp(file), kept);
}

TEST_F(Evaluate, EverySplitAndTheWholeAsNumpyHasThem) {
  make_run();
  const std::int64_t all = tokens();
  const auto a = static_cast<std::int64_t>(0.8 * static_cast<double>(all));
  const auto b = static_cast<std::int64_t>((0.8 + 0.13) * static_cast<double>(all));
  expect_near(result({"--split", "train", "--set", "batch.micro=7"}),
              reference(0, a, false, false), 1e-6);
  expect_near(result({"--split", "test"}), reference(b, all, false, false), 1e-6);
  expect_near(result({"--split", "test", "--tail"}), reference(b, all, false, true),
              1e-6);
  EXPECT_THAT(out_, Not(HasSubstr("left out")));
  // Of the whole corpus every token but the first is predicted, and its text is counted.
  const json whole = result({"--data", corpus()});
  expect_near(whole, reference(0, all, false, true), 1e-6);
  EXPECT_EQ(whole["tokens"], all - 1);
  const auto text = static_cast<std::int64_t>(small_text(6000).size());
  EXPECT_LT(whole["bytes"], text);
  EXPECT_GT(whole["bytes"], text - 12);
  EXPECT_DOUBLE_EQ(whole["bits_per_byte"].get<double>(),
                   whole["bits_per_token"].get<double>() * static_cast<double>(all - 1) /
                       whole["bytes"].get<double>());
  // A part of it, in a number of windows that fills no micro-batch.
  const json some = result({"--data", corpus(), "--samples", "7"});
  expect_near(some, reference(0, 7 * 16 + 1, false, false), 1e-6);
  EXPECT_THAT(out_, HasSubstr("the first 7 of"));
}

TEST_F(Evaluate, MaskedLossesAndNamedSets) {
  const fs::path lines = scratch_ / "lines.txt";
  spill(lines, small_text(900));
  ASSERT_EQ(trireme({"tokenize", "--tokenizer", corpus(), "--documents", "line", "--out",
                     scratch_ / "lines.h5", lines})
                .status,
            0);
  const std::string path = (scratch_ / "lines.h5").string();
  ASSERT_EQ(train({"data.mask_eod_loss=true", "data.validation={lines: " + path +
                                                  ", all: " + corpus().string() + "}"})
                .status,
            0);
  const json found = result({});
  ASSERT_EQ(found["results"].size(), 2u);
  EXPECT_FALSE(found.contains("loss"));
  json own = json::object();
  std::istringstream records(slurp(run_dir() / "train.jsonl"));
  for (std::string line; std::getline(records, line);) {
    const json record = json::parse(line);
    if (record.contains("validation")) {
      own[record["validation"]["name"].get<std::string>()] = record["validation"];
    }
  }
  for (const json& set : found["results"]) {
    EXPECT_EQ(set["loss"], own[set["name"].get<std::string>()]["loss"]);
    EXPECT_EQ(set["tokens"], own[set["name"].get<std::string>()]["tokens"]);
  }
  // data.split was not what held something out.
  expect_refusal(evaluate({"--split", "test"}), {"data.validation", "data.split"});
  // Several files at once, each by itself.
  const json files = result({"--data", path, "--data", corpus()});
  ASSERT_EQ(files["results"].size(), 2u);
  EXPECT_EQ(files["results"][1]["name"], corpus().string());
  EXPECT_EQ(files["mask_eod_loss"], true);
}

TEST_F(Evaluate, OnAnyGrid) {
  make_run();
  const json alone = result({"--data", corpus()});
  struct Grid {
    int ranks;
    std::vector<std::string> set;
  };
  for (const Grid& grid :
       {Grid{3, {}}, Grid{2, {"parallel.tensor=2", "batch.micro=3"}},
        Grid{4, {"parallel.pipeline=2", "parallel.tensor=2", "parallel.sequence=true"}},
        Grid{2, {"parallel.zero=3"}}}) {
    std::vector<std::string> arguments = {"--data", corpus()};
    for (const std::string& set : grid.set) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    expect_near(result(arguments, grid.ranks), alone, 5e-7);
  }
  expect_refusal(evaluate({"--set", "parallel.tensor=3"}, 3),
                 {"parallel.tensor", "does not divide"});
  expect_refusal(evaluate({"--set", "parallel.tensor=2"}), {"parallel", "rank"});
  expect_refusal(evaluate({"--set", "model.layers=1"}),
                 {"--set model.layers=1", "batch.micro"});
}

TEST_F(Evaluate, GoesOnWhereItWasKilled) {
  make_run();
  const json whole = result({"--data", corpus()});
  const fs::path file = scratch_ / "progress.json";
  const auto numbers = [](json found) {
    found.erase("seconds");
    for (json& set : found["results"]) set.erase("seconds");
    return found;
  };
  // Killed in the sixth piece: the first is in the file.
  const RunResult killed = evaluate(
      {"--data", corpus(), "--resume", file, "--fault", "kill:phase=piece,after=6"});
  EXPECT_EQ(killed.status, 128 + 9);
  const json state = json::parse(slurp(file));
  const std::int64_t done = state["sets"][0]["samples"];
  EXPECT_GT(done, 0);
  EXPECT_LT(done, whole["windows"]);
  const std::vector<std::string> again = {"--data", corpus(), "--resume", file};
  EXPECT_EQ(numbers(result(again)), numbers(whole));
  // What is done is shown, not done again; and another grid takes it up as well.
  const std::string finished = slurp(file);
  EXPECT_EQ(numbers(result(again)), numbers(whole));
  EXPECT_EQ(slurp(file), finished);
  fs::remove(file);
  ASSERT_EQ(evaluate({"--data", corpus(), "--resume", file, "--samples", "41"}).status,
            0);
  expect_near(result(again, 2), whole, 1e-9);
  fs::remove(file);
  ASSERT_EQ(evaluate({"--data", corpus(), "--resume", file, "--samples", "40"}).status,
            0);
  EXPECT_EQ(numbers(result(again)), numbers(whole));

  expect_refusal(evaluate({"--data", corpus(), "--resume", file, "--samples", "3"}),
                 {"progress.json", "samples", "3 are asked for"});
  expect_refusal(evaluate({"--split", "test", "--resume", file}),
                 {"progress.json", "another evaluation", "split is \"all\" there",
                  "it is of other corpora, or of other parts"});
  json damaged = json::parse(slurp(file));
  damaged["sets"].push_back(damaged["sets"][0]);
  spill(file, damaged.dump());
  expect_refusal(evaluate({"--data", corpus(), "--resume", file}),
                 {"progress.json", "damaged: it holds 2 sets of 1"});
  for (
      const char* content :
      {"", "{}", "[1]", "text", "{\"kind\": \"trireme evaluation progress\"}",
       R"({"kind": "trireme evaluation progress", "of": 1, "sets": [{"samples": -1}]})"}) {
    spill(file, content);
    expect_refusal(evaluate(again), {"progress.json", "is not the progress"});
    EXPECT_EQ(slurp(file), content);
  }
  // Where nothing can be written, it is known before; and a disk that fills is a warning.
  expect_refusal(evaluate({"--data", corpus(), "--resume", scratch_ / "none/file"}),
                 {"none", "there is no directory"});
}

// No result takes the place of a corpus, of weights, or of any file that training wrote.
TEST_F(Evaluate, ResultsReplaceNoWork) {
  make_run({"run.steps=2", "checkpoint.every=2"});
  fs::copy_file(corpus(), scratch_ / "copy.h5");
  spill(scratch_ / "model.safetensors", "weights");
  std::vector<fs::path> kept = {scratch_ / "copy.h5", scratch_ / "model.safetensors"};
  for (const fs::path& directory : {run_dir(), newest()}) {
    for (const auto& entry : fs::directory_iterator(directory)) {
      if (entry.is_regular_file()) kept.push_back(entry.path());
    }
  }
  EXPECT_GT(kept.size(), 8u);
  for (const fs::path& file : kept) {
    SCOPED_TRACE(file);
    const std::string before = slurp(file);
    expect_refusal(evaluate({"--json", file}),
                   {file.filename(), "does not replace", "another file"});
    EXPECT_TRUE(slurp(file) == before);
  }
  const fs::path deck = run_dir() / "deck.yaml";
  for (const char* option : {"--out", "--json"}) {
    expect_refusal(
        trireme({"generate", "--checkpoint", run_dir(), "--prompt", "the", option, deck}),
        {"deck.yaml", "part of the run"});
  }
  expect_refusal(trireme({"fill", run_dir(), "--text", "the", "--json", deck}),
                 {"deck.yaml", "part of the run"});
  // A name of its own is free there, a second time, too.
  for (int time = 0; time < 2; ++time) {
    const RunResult made = evaluate({"--json", run_dir() / "evaluation.json"});
    EXPECT_EQ(made.status, 0) << made.err;
  }
}

TEST_F(Evaluate, WrongInput) {
  make_run({"data.split=[0.87, 0.13, 0.0]"});
  expect_refusal(evaluate({"--data", scratch_ / "none.h5"}), {"none.h5"});
  spill(scratch_ / "text.h5", "no corpus");
  expect_refusal(evaluate({"--data", scratch_ / "text.h5"}),
                 {"text.h5", "is not an HDF5 file"});
  const fs::path other = make_corpus(scratch_.path(), "other.h5", 280, 300);
  expect_refusal(evaluate({"--data", other}), {"other.h5", "another tokenizer"});
  expect_refusal(evaluate({"--data", other}, 2), {"other.h5", "another tokenizer"});
  // What the message advises, of a run and of a checkpoint.
  spill(scratch_ / "text.txt", "The oars. The oars of the trireme, and the sea.\n");
  for (const fs::path& trained : {run_dir(), newest()}) {
    fs::remove(scratch_ / "retold.h5");
    const RunResult made = trireme({"tokenize", scratch_ / "text.txt", "--tokenizer",
                                    trained, "--out", scratch_ / "retold.h5"});
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_EQ(evaluate({"--data", scratch_ / "retold.h5"}).status, 0);
  }
  expect_refusal(evaluate({"--split", "test"}), {"test", "data.split", "0.87"});
  expect_refusal(trireme({"evaluate", "--checkpoint", scratch_ / "none"}), {"none"});
  // Fewer tokens than a window: a whole corpus is counted all the same.
  spill(scratch_ / "short.txt", "the oar");
  const std::string little = (scratch_ / "short.h5").string();
  ASSERT_EQ(trireme({"tokenize", "--tokenizer", corpus(), "--out", little,
                     scratch_ / "short.txt"})
                .status,
            0);
  EXPECT_GT(result({"--data", little})["tokens"], 0);
  expect_refusal(evaluate({"--data", little, "--split", "validation"}),
                 {"short.h5", "one sample takes 17"});
  // The run's corpus is another file now.
  fs::copy_file(other, scratch_ / "own.h5");
  fs::remove_all(run_dir());
  fs::copy_file(corpus(), scratch_ / "own.h5", fs::copy_options::overwrite_existing);
  make_run({"data.train=" + (scratch_ / "own.h5").string()});
  fs::copy_file(other, scratch_ / "own.h5", fs::copy_options::overwrite_existing);
  expect_refusal(evaluate({}), {"checksums", "data.train"});
}

TEST_F(EvaluateKinds, AreTheirRunsOwnValidation) {
  for (const std::string kind : {"bert", "t5"}) {
    SCOPED_TRACE(kind);
    fs::remove_all(run_dir());
    const RunResult trained = train_to_evaluate(kind);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const json own = validation();
    for (const std::vector<std::string>& how :
         {std::vector<std::string>{},
          {"--data", corpus_of(kind), "--split", "validation"}}) {
      const json found = result(how);
      expect_means(found, own, 0.0);  // to the bit
      EXPECT_EQ(found["perplexity"], own["perplexity"]);
      // What is predicted here and there says nothing of the text's bits.
      EXPECT_TRUE(found["bits_per_byte"].is_null());
    }
    EXPECT_THAT(out_, HasSubstr("of the words that are predicted"));
    EXPECT_THAT(out_, HasSubstr(" predicted words/s\n"));
    EXPECT_EQ(own.contains("losses"), kind == "bert");
    EXPECT_EQ(out_.find("segment pairs") != std::string::npos, kind == "bert");
    // The last, shorter window counts where it is asked for.
    const json whole = result({"--split", "test"});
    EXPECT_GT(whole["results"][0]["tokens_behind_last_window"], 0);
    const json tail = result({"--split", "test", "--tail"});
    EXPECT_EQ(tail["results"][0]["tokens_behind_last_window"], 0);
    EXPECT_EQ(tail["results"][0]["windows"],
              whole["results"][0]["windows"].get<int>() + 1);
    EXPECT_GT(tail["tokens"], whole["tokens"]);
  }
}

TEST_F(EvaluateKinds, OnAnyGrid) {
  for (const std::string kind : {"bert", "t5"}) {
    SCOPED_TRACE(kind);
    fs::remove_all(run_dir());
    const RunResult trained = train_to_evaluate(kind);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const std::vector<std::string> all = {"--data", corpus_of(kind)};
    const json alone = result(all);
    for (const std::vector<std::string>& set :
         {std::vector<std::string>{},
          {"parallel.tensor=2", "parallel.sequence=true", "batch.micro=3"},
          {"parallel.pipeline=2"},
          {"parallel.zero=3"}}) {
      std::vector<std::string> arguments = all;
      for (const std::string& text : set) {
        arguments.insert(arguments.end(), {"--set", text});
      }
      expect_means(result(arguments, 2), alone, 1e-6);
    }
    expect_refusal(evaluate({"--set", "data.pairs=none"}),
                   {"--set data.pairs=none", "are the checkpoint's"});
  }
}

// A sample of one sentence counts for no pair, and one of a single token for nothing:
// where there are no others, it is said in words, in training as in evaluation.
TEST_F(EvaluateKinds, WhereNothingCounts) {
  const auto no_number = [](const std::string& text) {
    EXPECT_THAT(text, testing::AllOf(Not(HasSubstr(" nan")), Not(HasSubstr("-nan"))));
  };
  for (const std::string kind : {"bert", "t5"}) {
    SCOPED_TRACE(kind);
    const bool is_bert = kind == "bert";
    // The first windows have none that counts (for pairs), the last ones have.
    std::string text;
    for (int i = 0; i < 60; ++i) text += is_bert ? "W5 w6 w7 .\n" : "w5\n";
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 20; ++k) text += is_bert ? "W5 w6 w7 . " : "w5 w6 w7 ";
      text += "\n";
    }
    const fs::path path = scratch_ / (kind + "-few.h5");
    std::vector<std::string> options = {"--documents", "line"};
    if (is_bert) options.insert(options.end(), {"--sentences", "en"});
    make_kind_corpus(path, options, tokenizer_of(kind), text);
    fs::remove_all(run_dir());
    const RunResult trained = train_kind(
        kind, path,
        {"data.validation={few: " + path.string() + "}", "run.validate_samples=2",
         "run.log_every=1", "run.steps=4", "run.validate_every=2",
         is_bert ? "data.pairs=order" : "data.pack=false"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    no_number(trained.out);
    const json own = validation();
    const std::vector<std::string> first = {"--data", path, "--samples", "2"};
    if (is_bert) {
      const json few = result(first);
      EXPECT_THAT(trained.out, HasSubstr(", segment pairs not known),\n  perplexity "));
      EXPECT_THAT(out_, HasSubstr(", segment pairs not known)\n"));
      no_number(out_);
      for (const json& found : {own, few}) {
        EXPECT_TRUE(found["losses"]["segment pairs"].is_null());
        EXPECT_TRUE(found["loss"].is_number());
      }
    } else {
      EXPECT_THAT(trained.out, HasSubstr("step 4: few loss not known\n"));
      EXPECT_THAT(trained.out, HasSubstr("loss not known at step 4\n"));
      expect_refusal(evaluate(first), {path.string(),
                                       "has no token that counts in 2 samples: no text "
                                       "there has two tokens"});
      EXPECT_TRUE(own["loss"].is_null());
      EXPECT_TRUE(own["perplexity"].is_null());
      EXPECT_EQ(own["tokens"], 0);
    }
    // All of it has some that count.
    const json all = result({"--data", path});
    EXPECT_TRUE(all["loss"].is_number());
    EXPECT_EQ(all.contains("losses"), is_bert);
    if (is_bert) {
      EXPECT_TRUE(all["losses"]["segment pairs"].is_number());
    }
  }
}

// A corpus of as many words, two of which have each other's ids, has all that the kind's
// samples need; only its tokenizer tells that its ids mean something else here.
TEST_F(EvaluateKinds, CorpusOfAnotherTokenizer) {
  for (const std::string kind : {"bert", "t5"}) {
    SCOPED_TRACE(kind);
    TextFiles files = tokenizer_of(kind);
    std::string& words = files[kind == "bert" ? "vocab.txt" : "tokenizer.json"];
    const std::string quote = kind == "bert" ? "\n" : "\"";
    const std::size_t first = words.find(quote + "w7" + quote),
                      second = words.find(quote + "w8" + quote);
    ASSERT_NE(first, std::string::npos);
    ASSERT_NE(second, std::string::npos);
    std::swap(words[first + 2], words[second + 2]);
    const fs::path swapped = scratch_ / (kind + "-swapped.h5");
    const std::vector<std::string> options =
        kind == "bert" ? std::vector<std::string>{"--sentences", "en"}
                       : std::vector<std::string>{};
    make_kind_corpus(kind, swapped, options, files);
    const fs::path same = scratch_ / (kind + "-same.h5");
    make_kind_corpus(kind, same, options);

    fs::remove_all(run_dir());
    const RunResult trained = train_to_evaluate(kind);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const fs::path numbers = scratch_ / "refused.json";
    for (const int ranks : {0, 2}) {
      expect_refusal(evaluate({"--data", swapped, "--json", numbers}, ranks),
                     {"'" + swapped.string() + "'", "another tokenizer"});
    }
    EXPECT_FALSE(fs::exists(numbers));
    // Of several files the one is named that is not the model's.
    const RunResult both = evaluate({"--data", same, "--data", swapped});
    expect_refusal(both, {"'" + swapped.string() + "'", "another tokenizer"});
    EXPECT_THAT(both.err, Not(HasSubstr(same.string())));
    EXPECT_GT(result({"--data", same})["tokens"], 0);
    // What the other kind's corpus lacks is not the mistake.
    const fs::path& others = corpus_of(kind == "bert" ? "t5" : "bert");
    const RunResult foreign = evaluate({"--data", others});
    expect_refusal(foreign, {"'" + others.string() + "'", "another tokenizer",
                             "trireme tokenize --tokenizer"});
    EXPECT_THAT(foreign.err,
                testing::AllOf(Not(HasSubstr("sentinels")), Not(HasSubstr("sentences"))));
  }
}

// A head of Hugging Face's BERT judges next sentences: what training on such pairs
// validates by is what is evaluated, of a corpus cut as a new deck does. A rate this
// small leaves the weights as they are.
TEST_F(EvaluateKinds, AnImportedBertOnThePairsOfItsHead) {
  convert_fixture(scratch_, "bert_odd");
  const fs::path imported = scratch_ / "bert_odd";
  EXPECT_THAT(trireme({"inspect", imported, "--deck"}).out, HasSubstr("pairs: next"));
  const std::vector<std::string> model = {
      "model.hidden=30",           "model.heads=3",      "model.sequence=17",
      "model.norm_placement=post", "optimizer.lr=1e-30", "run.steps=1",
      "data.split=[0.98, 0.02, 0]"};
  std::map<std::string, json> own;
  for (const std::string pairs : {"next", "order"}) {
    fs::remove_all(run_dir());
    std::vector<std::string> set = model;
    set.push_back("data.pairs=" + pairs);
    const RunResult trained = train_to_evaluate("bert", set, {"--init-from", imported});
    ASSERT_EQ(trained.status, 0) << trained.err;
    own[pairs] = validation();
  }
  expect_refusal(trireme({"evaluate", "--checkpoint", imported}),
                 {"names no corpora of its own", "give --data CORPUS"});
  // Each use refuses in its own name what is no business of one who only uses the model.
  spill(scratch_ / "texts.txt", "w5 w6\n");
  const std::vector<std::string> of_model = {"--set", "model.layers=1"};
  for (const std::vector<std::string>& use :
       {std::vector<std::string>{"fill", imported, "--text", "[MASK]"},
        {"embed", imported, "--text", scratch_ / "texts.txt", "--out",
         scratch_ / "vectors.h5"}}) {
    std::vector<std::string> arguments = use;
    arguments.insert(arguments.end(), of_model.begin(), of_model.end());
    expect_refusal(trireme(arguments), {"--set model.layers=1: `trireme " + use[0] +
                                        "` takes precision.compute"});
  }
  const auto evaluate_imported = [&](const fs::path& data) {
    return trireme({"evaluate", "--checkpoint", imported, "--data", data, "--split",
                    "validation", "--json", scratch_ / "imported.json"});
  };
  fs::remove_all(run_dir());
  const RunResult evaluated = evaluate_imported(corpus_of("bert"));
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const json found = json::parse(slurp(scratch_ / "imported.json"));
  expect_means(found, own["next"], 0.0);
  EXPECT_NE(found["losses"]["segment pairs"], own["order"]["losses"]["segment pairs"]);
  // What is said of a corpus without sentences can be done.
  make_kind_corpus("bert", scratch_ / "plain.h5", {});
  const RunResult plain = evaluate_imported(scratch_ / "plain.h5");
  expect_refusal(plain, {"plain.h5' has no sentences, and data.pairs: next",
                         "make it again with `trireme tokenize --sentences LANGUAGE`"});
  EXPECT_THAT(plain.err, Not(HasSubstr("or set")));
}

// Weights that give no number are the checkpoint's fault, and nothing is printed of it.
TEST_F(Evaluate, WeightsThatAreNoNumbers) {
  make_checkpoint(run_dir(), {.with_tokenizer = false, .poisoned = true});
  expect_refusal(evaluate({"--data", corpus()}),
                 {"step_00000007", "is not finite", "layers/1"});
  // Without a tokenizer of its own a model takes the corpus' word, with a warning.
  fs::remove_all(run_dir());
  make_checkpoint(run_dir(), {.with_tokenizer = false});
  EXPECT_GT(result({"--data", corpus()})["bytes"], 0);
  EXPECT_THAT(err_, HasSubstr("names no tokenizer"));
  fs::remove_all(run_dir());
  make_checkpoint(run_dir(), {.with_tokenizer = false, .vocab = "299"});
  expect_refusal(evaluate({"--data", corpus()}),
                 {"corpus.h5", "vocabulary of 300", "one of 299"});
}

// Of a run whose masks had a rate that 16-bit words cannot have: nothing is dropped here,
// so that it matters to nobody.
TEST_F(Evaluate, ADropoutThatOnlyEarlierVersionsTook) {
  make_checkpoint(run_dir(), {.with_tokenizer = false});
  const json plain = result({"--data", corpus()});
  fs::remove_all(run_dir());
  make_checkpoint(run_dir(), {.with_tokenizer = false, .dropout = 1e-6});
  EXPECT_EQ(result({"--data", corpus()})["loss"], plain["loss"]);
  EXPECT_GT(result({"--data", corpus(), "--set", "precision.compute=bf16"})["loss"], 0.0);
  const fs::path inspected = scratch_ / "inspected.json";
  const RunResult run = trireme({"inspect", newest(), "--json", inspected});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(slurp(inspected), Not(HasSubstr("deck_problem")));
}

}  // namespace
}  // namespace trireme::test

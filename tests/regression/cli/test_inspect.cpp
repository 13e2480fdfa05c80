// `trireme inspect`: corpora, checkpoints and runs, whole and damaged.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

class Inspect : public Workplace {
 protected:
  RunResult inspect(const fs::path& path,
                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"inspect", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme(arguments);
  }
  // Shown in full with status 0, in text and as JSON.
  json whole(const fs::path& path) {
    const RunResult result = inspect(path, {"--json", scratch_ / "all.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    out_ = result.out;
    const RunResult verified = inspect(path, {"--verify"});
    EXPECT_EQ(verified.status, 0) << verified.err;
    EXPECT_THAT(verified.out, HasSubstr("Verified: all checksums hold"));
    return json::parse(slurp(scratch_ / "all.json"));
  }
  void expect_damaged(const fs::path& path, const std::vector<std::string>& parts) {
    const RunResult result = inspect(path, {"--verify"});
    EXPECT_EQ(result.status, 2) << result.out;
    for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  }
  std::string out_;
};

TEST_F(Inspect, Corpus) {
  const json result = whole(corpus());
  EXPECT_EQ(result["kind"], "corpus");
  EXPECT_EQ(result["vocabulary_size"], 300);
  EXPECT_EQ(result["documents"], 1);
  for (const char* word :
       {"Corpus ", "tokens", "(uint16)", "documents", "vocabulary", "end of document",
        "unigram entropy", "checksum", "tokenizer.json"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
}

TEST_F(Inspect, RunAndCheckpoint) {
  ASSERT_EQ(train().status, 0);
  const json run = whole(run_dir());
  EXPECT_EQ(run["kind"], "run");
  ASSERT_EQ(run["checkpoints"].size(), 2u);
  EXPECT_EQ(run["newest"]["step"], 4);
  EXPECT_THAT(out_, HasSubstr("step_00000002"));
  EXPECT_THAT(out_, HasSubstr("whole, latest"));
  EXPECT_EQ(whole(run_dir() / "checkpoints")["kind"], "run");
  const json checkpoint = whole(newest());
  EXPECT_EQ(checkpoint["kind"], "checkpoint");
  EXPECT_EQ(checkpoint["parameters"], 35584);
  EXPECT_EQ(checkpoint["state"]["samples"], 16);
  EXPECT_EQ(checkpoint["state"]["tokens"], 16 * 16);
  for (const char* word : {"weights and optimizer state", "35,584", "1234 (run)",
                           "layers/0 to layers/1, each:", "    mlp/fc2/weight", "96 x 32",
                           "tensors of optimizer state"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
  // Single files of it are HDF5 like any other.
  const RunResult index = inspect(newest() / "index.h5");
  EXPECT_EQ(index.status, 0) << index.err;
  EXPECT_THAT(index.out, HasSubstr("HDF5 file"));
}

// What a run is and how far it has come stands before its tensors.
TEST_F(Inspect, ModelStateAndLossesComeFirst) {
  ASSERT_EQ(train({"run.validate_every=2"}).status, 0);
  const json run = whole(run_dir());
  EXPECT_EQ(run["model"], (json{{"kind", "gpt"},
                                {"layers", 2},
                                {"hidden", 32},
                                {"heads", 4},
                                {"kv_heads", 4},
                                {"head_size", 8},
                                {"ffn_hidden", 128},
                                {"sequence", 16},
                                {"vocabulary", 300},
                                {"parameters", 35584}}));
  json records = json::array();
  std::istringstream lines(slurp(run_dir() / "train.jsonl"));
  for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
  const json last = records.back()["validation"];
  const json& training = run["training"];
  EXPECT_EQ(training["step"], 4);
  EXPECT_EQ(training["steps"], 4);
  EXPECT_EQ(training["finished"], true);
  EXPECT_EQ(training["samples"], 16);
  EXPECT_EQ(training["tokens"], 256);
  EXPECT_EQ(training["loss"]["step"], 4);
  EXPECT_EQ(training["loss"]["value"], records[records.size() - 2]["loss"]);
  EXPECT_EQ(training["validation"][0]["loss"], last["loss"]);
  EXPECT_EQ(training["best_validation"]["loss"], last["loss"]);

  std::size_t at = 0;
  for (const std::string& word :
       {std::string("gpt: 2 layers x 32 hidden x 4 heads"), std::string("vocabulary 300"),
        std::string("finished: step 4 of 4"), std::string("16 samples, 256 tokens"),
        fmt::format("{:.5f} at step 4", last["loss"].get<double>()),
        std::string("step_00000004"), std::string("tensor of model/"),
        std::string("embedding/word/weight"), std::string("layers/0"),
        std::string("final_norm/weight")}) {
    const std::size_t found = out_.find(word, at);
    ASSERT_NE(found, std::string::npos) << word << " is not where it should be\n" << out_;
    at = found;
  }
  std::istringstream shown(out_);
  for (std::string line; std::getline(shown, line);) {
    if (line.find(scratch_.path().string()) == std::string::npos) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }

  // An older checkpoint tells what was known at its time, and the run can go on.
  const json older = whole(run_dir() / "checkpoints/step_00000002");
  EXPECT_EQ(older["training"]["loss"]["step"], 2);
  EXPECT_EQ(older["training"]["validation"][0]["step"], 2);
  EXPECT_EQ(older["training"]["finished"], false);
  EXPECT_THAT(out_, HasSubstr("not finished: step 2 of 4"));

  // The deck alone, as it can be fed back.
  const RunResult deck = inspect(run_dir(), {"--deck"});
  EXPECT_EQ(deck.status, 0) << deck.err;
  EXPECT_EQ(deck.out, slurp(run_dir() / "deck.yaml"));
  EXPECT_EQ(older["deck"], deck.out);
  expect_refusal(inspect(corpus(), {"--deck"}), {"corpus.h5", "has no deck"});

  // No checkpoint any more, and a record torn by a kill.
  fs::remove_all(run_dir() / "checkpoints");
  spill(run_dir() / "train.jsonl",
        slurp(run_dir() / "train.jsonl") + "{\"step\": 5, \"lo");
  const json bare = whole(run_dir());
  EXPECT_EQ(bare["training"]["loss"]["step"], 4);
  EXPECT_THAT(out_, HasSubstr("no checkpoint yet"));
}

// Lines of train.jsonl that are JSON and no records are passed over.
TEST_F(Inspect, LinesThatAreNoRecords) {
  ASSERT_EQ(train({"run.validate_every=2"}).status, 0);
  const json whole_records = whole(run_dir())["training"];
  const std::string records = slurp(run_dir() / "train.jsonl");
  for (const char* line :
       {R"({"step": "x", "loss": 1})", R"({"step": 1e300, "loss": 1})",
        R"({"step": 3, "loss": "low"})", R"({"step": null, "loss": 1})", R"({"loss": 1})",
        R"({"validation": {"step": 4, "loss": 1}})", R"({"validation": []})",
        R"({"validation": {"name": 7, "step": 4, "loss": 1}})", "[]", "7", "null"}) {
    spill(run_dir() / "train.jsonl", records + line + "\n");
    const RunResult result = inspect(run_dir(), {"--json", scratch_ / "odd.json"});
    ASSERT_EQ(result.status, 0) << line << "\n" << result.err;
    EXPECT_EQ(json::parse(slurp(scratch_ / "odd.json"))["training"], whole_records)
        << line;
  }
}

// Tensors by layer, whatever the order in which ranks have written them.
TEST_F(Inspect, TensorsByLayer) {
  ASSERT_EQ(trireme_on_ranks(2, train_arguments({"parallel.pipeline=2", "model.layers=11",
                                                 "run.steps=1", "batch.micro=1"}))
                .status,
            0);
  const json run = whole(run_dir());
  std::vector<std::string> names;
  for (const json& tensor : run["newest"]["tensors"]) names.push_back(tensor["name"]);
  ASSERT_EQ(names.size(), 3 * (4 + 11 * 12u));
  EXPECT_EQ(names[0], "model/embedding/word/weight");
  EXPECT_EQ(names[1], "model/embedding/position/weight");
  EXPECT_EQ(names[2], "model/layers/0/input_norm/weight");
  EXPECT_EQ(names[3], "model/layers/0/input_norm/bias");
  EXPECT_EQ(names[2 + 10 * 12], "model/layers/10/input_norm/weight");
  EXPECT_EQ(names[3 + 11 * 12], "model/final_norm/bias");
  EXPECT_EQ(names[4 + 11 * 12], "optimizer/exp_avg/embedding/word/weight");
  EXPECT_THAT(out_, HasSubstr("layers/0 to layers/10, each:"));
}

TEST_F(Inspect, Damage) {
  std::string content = slurp(corpus());
  const std::string original = content;
  content[content.size() / 2] ^= 4;
  spill(scratch_ / "flipped.h5", content);
  expect_damaged(scratch_ / "flipped.h5", {"Damaged", "flipped.h5", "checksum"});
  spill(scratch_ / "cut.h5", original.substr(0, original.size() / 2));
  expect_damaged(scratch_ / "cut.h5", {"cut.h5", "truncated"});

  ASSERT_EQ(train().status, 0);
  const fs::path step = run_dir() / "checkpoints/step_00000002";
  content = slurp(step / "shard_00000.h5");
  content[content.size() / 2] ^= 4;
  spill(step / "shard_00000.h5", content);
  EXPECT_EQ(inspect(step).status, 0);  // sizes only
  expect_damaged(step, {"shard_00000.h5", "expected", "found"});
  expect_damaged(run_dir(), {"shard_00000.h5"});
  fs::remove(step / "shard_00000.h5");
  const RunResult gone = inspect(step);
  EXPECT_EQ(gone.status, 2);
  EXPECT_THAT(gone.err, HasSubstr("shard_00000.h5"));
}

// Links that lead round in a circle: what nobody can read, root neither.
TEST_F(Inspect, WhatCannotBeReadIsNotCalledDamaged) {
  ASSERT_EQ(train().status, 0);
  const fs::path step = run_dir() / "checkpoints/step_00000002";
  for (const char* name : {"shard_00000.h5", "manifest.json"}) {
    fs::remove(step / name);
    fs::create_symlink(name, step / name);
    for (const fs::path& path : {step, run_dir()}) {
      const RunResult result = inspect(path, {"--json", scratch_ / "all.json"});
      EXPECT_EQ(result.status, 2) << result.out;
      EXPECT_THAT(result.err, HasSubstr("Cannot be read: cannot read"));
      EXPECT_THAT(result.err, HasSubstr(name));
      EXPECT_THAT(result.err, HasSubstr("symbolic links"));
      EXPECT_THAT(result.err, Not(HasSubstr("Damaged")));
      const json shown = json::parse(slurp(scratch_ / "all.json"));
      EXPECT_EQ(shown["unreadable"], shown["problems"]);
      // The run has an older checkpoint beside it only where that is whole.
      if (std::string(name) != "manifest.json" || path != step) continue;
      EXPECT_FALSE(shown["training"].contains("step"));
      EXPECT_THAT(result.out, HasSubstr("not known: no manifest can be read"));
      EXPECT_THAT(result.out, Not(HasSubstr("0 files")));
    }
  }
  EXPECT_THAT(inspect(run_dir()).out, HasSubstr("step_00000002 cannot be read"));
  fs::rename(step, scratch_ / "copy");  // whose name does not tell that it is one
  EXPECT_THAT(inspect(scratch_ / "copy").err, HasSubstr("Cannot be read: cannot read"));
  fs::rename(run_dir() / "checkpoints", scratch_ / "moved");
  fs::create_symlink("nowhere", run_dir() / "checkpoints");
  const RunResult moved = inspect(run_dir());
  EXPECT_EQ(moved.status, 2);
  EXPECT_THAT(moved.err, HasSubstr("Cannot be read: the link"));
  EXPECT_THAT(moved.out, Not(HasSubstr("step 0 of")));
  fs::create_symlink("circle", scratch_ / "circle");
  expect_refusal(inspect(scratch_ / "circle"), {"cannot read", "circle", "links"});
}

// The checkpoints are whole without them.
TEST_F(Inspect, RecordsAndDeckThatCannotBeReadAreNamed) {
  ASSERT_EQ(train().status, 0);
  spill(run_dir() / "train.jsonl", "\x01\x02 no record\n");
  EXPECT_THAT(inspect(run_dir()).out,
              HasSubstr("its records cannot be read: no line of"));
  for (const char* name : {"train.jsonl", "deck.yaml"}) {
    fs::remove(run_dir() / name);
    fs::create_symlink(name, run_dir() / name);
  }
  const RunResult result = inspect(run_dir());
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("its records cannot be read: cannot read file"));
  EXPECT_THAT(result.out, HasSubstr("its deck cannot be read: cannot read file"));
  EXPECT_THAT(result.out, Not(HasSubstr("finished")));  // of the deck of a checkpoint
  expect_refusal(inspect(run_dir(), {"--deck"}), {"has no deck: cannot read file"});
}

TEST_F(Inspect, NothingThatItKnows) {
  expect_refusal(inspect(scratch_ / "none"),
                 {"none", "does not exist", "corpus, a checkpoint or a run directory"});
  spill(scratch_ / "book.txt", "text");
  expect_refusal(inspect(scratch_ / "book.txt"),
                 {"book.txt", "not an HDF5 file", "corpus"});
  spill(scratch_ / "tokenizer.json", "{}");
  expect_refusal(inspect(scratch_ / "tokenizer.json"), {"tokenizer.json", "corpus"});
  fs::create_directories(scratch_ / "void");
  expect_refusal(inspect(scratch_ / "void"), {"void", "no run directory"});
  expect_error(inspect(corpus(), {"--json", scratch_ / "void"}), 2,
               {"void", "directory"});
}

// Devices and pipes are written to, never replaced; what cannot be printed is no success.
TEST_F(Inspect, OutputOfAnotherKind) {
  const RunResult both = inspect(corpus(), {"--json", "/dev/stdout"});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("\"kind\": \"corpus\""));
  EXPECT_EQ(inspect(corpus(), {"--json", "/dev/null"}).status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const RunResult full = run({"/bin/sh", "-c", "exec \"$0\" inspect \"$1\" >/dev/full",
                              std::getenv("TRIREME_BINARY"), corpus()});
  expect_error(full, 1, {"cannot write the output to stdout"});
}

}  // namespace
}  // namespace trireme::test

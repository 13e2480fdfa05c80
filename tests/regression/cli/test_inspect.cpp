// `trireme inspect`: corpora, checkpoints and runs, whole and damaged.
#include <fmt/format.h>

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "regression/cli/model_uses.hpp"
#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

TEST_F(Inspect, TensorsOfEachStackByLayer) {
  convert_fixture(scratch_, "t5_odd", {});
  whole(scratch_ / "t5_odd");
  const json config = json::parse(slurp(hugging_face_fixture("t5_odd") / "config.json"));
  const auto expect_stack = [&](const std::string& name, const char* count) {
    const int last = config.at(count).get<int>() - 1;
    EXPECT_GT(last, 0);
    EXPECT_THAT(out_, HasSubstr(fmt::format("{0}/layers/0 to {0}/layers/{1}, each:", name,
                                            last)));
  };
  expect_stack("encoder", "num_layers");
  expect_stack("decoder", "num_decoder_layers");
}

TEST_F(Inspect, Damage) {
  std::string content = slurp(corpus());
  const std::string original = content;
  content[content.size() / 2] ^= 4;
  spill(scratch_ / "flipped.h5", content);
  expect_damaged(scratch_ / "flipped.h5", {"Damaged", "flipped.h5", "checksum"});
  spill(scratch_ / "cut.h5", original.substr(0, original.size() / 2));
  expect_damaged(scratch_ / "cut.h5", {"cut.h5", "truncated"});
  // With samples asked for, the damage is still what is wrong.
  const RunResult shown = inspect(scratch_ / "cut.h5", {"--show", "1"});
  EXPECT_EQ(shown.status, 2) << shown.out;
  EXPECT_EQ(shown.err, inspect(scratch_ / "cut.h5").err);

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

// Samples as the models of decks see them. What is drawn is fixed by the seed, on any
// machine.
class InspectSamples : public Inspect {
 protected:
  fs::path corpus_of(const std::vector<std::string>& how) const {
    std::string text;
    for (int i = 0; i < 6; ++i) {
      text +=
          "In the beginning God created the heaven and the earth. And the earth was "
          "without form, and void; and darkness was upon the face of the deep. And the "
          "Spirit of God moved upon the face of the waters. And God said, Let there be "
          "light: and there was light.\n";
    }
    return corpus_of(how, text);
  }
  // Lines are documents.
  fs::path corpus_of(const std::vector<std::string>& how, const std::string& text) const {
    spill(scratch_ / "genesis.txt", text);
    std::vector<std::string> arguments = {
        "tokenize", "--documents", "line", "--out", path(), "--overwrite", "--tokenizer"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    arguments.push_back(scratch_ / "genesis.txt");
    const RunResult made = trireme(arguments);
    EXPECT_EQ(made.status, 0) << made.err;
    return path();
  }
  fs::path path() const { return scratch_ / "genesis.h5"; }
  static std::string fixture(const std::string& name) {
    return source_file("tests/parity/fixtures/tokenizer/" + name);
  }
  fs::path deck_of(const std::string& text) const {
    spill(scratch_ / "kind.yaml", text);
    return scratch_ / "kind.yaml";
  }
  // What is printed of the samples, which is what the JSON has.
  std::string shown(const std::string& deck, int samples = 1) {
    const RunResult result =
        inspect(path(), {"--show", std::to_string(samples), "--model-deck", deck_of(deck),
                         "--json", scratch_ / "all.json"});
    EXPECT_EQ(result.status, 0) << result.err;
    json_ = json::parse(slurp(scratch_ / "all.json"))["samples"];
    const std::size_t begin = result.out.find("\nsample 0, window ");
    for (const json& sample : json_["shown"]) {
      EXPECT_THAT(result.out, HasSubstr("\n" + sample["text"].get<std::string>()));
    }
    return begin == std::string::npos ? result.out : result.out.substr(begin + 1);
  }
  json json_;
};

const std::string kSmall = "layers: 2, hidden: 32, heads: 4, ";

TEST_F(InspectSamples, OfGpt) {
  corpus_of({fixture("trained.json")});
  EXPECT_EQ(shown("model: {" + kSmall + "sequence: 16}"),
            "sample 0, window 14\n"
            "text, 16 positions\n"
            "  tokens     \" heaven and the earth. And the earth was without form\"\n"
            "  positions  0 ... 15\n"
            "  labels     \"aven and the earth. And the earth was without form,\"\n"
            "  loss_mask  1 x 16\n");
  EXPECT_EQ(json_["kind"], "gpt");
  EXPECT_EQ(json_["shown"][0]["position"], 0);
  // Without a deck, and more than there are.
  const RunResult all = inspect(path(), {"--show", "1000"});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.out, HasSubstr("as seen by a GPT of 64 positions\n(--model-deck DECK"));
  EXPECT_THAT(all.out, HasSubstr("text, 64 positions\n"));
}

TEST_F(InspectSamples, OfBert) {
  corpus_of({fixture("uncased"), "--sentences", "en"});
  const std::string model = "model: {kind: bert, " + kSmall + "sequence: 32}\n";
  EXPECT_EQ(shown(model + "data: {pairs: order}"),
            "sample 0, window 10\n"
            "text, 32 positions\n"
            "  tokens            \"[CLS] the earth was without form, and void ; and "
            "{jerich} {[MASK]} upon the face {pill} the deep [SEP] in {[MASK]} beginning "
            "god created the heaven and the{onia}. [SEP]\"\n"
            "  positions         0 ... 31\n"
            "  lengths           32\n"
            "  token_types       0 x 20, 1 x 12\n"
            "  pair_labels       1\n"
            "  pair_weights      1\n"
            "predictions, 5 positions\n"
            "  masked_positions  11, 12, 16, 21, 29\n"
            "  masked_labels     \" darkness\", \" was\", \" of\", \" the\", \" earth\"\n"
            "  masked_weights    1 x 5\n");
  EXPECT_EQ(json_["kind"], "bert");
  // A key of the deck may be another for this look.
  const RunResult shorter =
      inspect(path(), {"--show", "1", "--model-deck", scratch_ / "kind.yaml", "--set",
                       "model.sequence=24", "--set", "data.pairs=none", "--set",
                       "model.binary_head=false"});
  EXPECT_EQ(shorter.status, 0) << shorter.err;
  EXPECT_THAT(shorter.out, HasSubstr("text, 24 positions\n"));
  EXPECT_THAT(shorter.out, Not(HasSubstr("pair_labels")));
}

// What the text of a BERT's sample says of each of its segments: how many tokens it has,
// and of which words. What is in braces is a token each, and says nothing of its
// document.
struct Segment {
  int tokens = 0;
  std::set<std::string> words;
};
std::vector<Segment> segments_of(const std::string& sample) {
  const std::regex token(R"(\{[^}]*\}|\[[A-Z]+\]|[a-z]+|\.)"), line("tokens +\"(.*)\"");
  std::smatch found;
  EXPECT_TRUE(std::regex_search(sample, found, line)) << sample;
  const std::string text = found.str(1);
  std::vector<Segment> segments(1);
  for (std::sregex_iterator i(text.begin(), text.end(), token), end; i != end; ++i) {
    ++segments.back().tokens;
    if (std::isalpha(i->str()[0]) != 0) segments.back().words.insert(i->str());
    if (i->str() == "[SEP]") segments.emplace_back();
  }
  segments.pop_back();  // behind the last [SEP]
  return segments;
}

// Each document has a word of its own, which tells from where a segment is: two words in
// a sample whose second segment is of another document, and one where it goes on.
TEST_F(InspectSamples, OfBertWithNextSentences) {
  std::string text;
  for (const std::string word :
       {"heaven", "light", "waters", "deep", "earth", "spirit", "face", "god"}) {
    for (int i = 0; i < 12; ++i) text += "The " + word + " " + word + " " + word + ". ";
    text += "\n";
  }
  corpus_of({fixture("uncased"), "--sentences", "en"}, text);
  const std::string print = shown("model: {kind: bert, " + kSmall +
                                      "sequence: 32}\n"
                                      "data: {pairs: next, mask_prob: 0.05}",
                                  16);
  EXPECT_THAT(print, HasSubstr("\n  pair_weights      1\npredictions, "));
  ASSERT_EQ(json_["shown"].size(), 16u);
  std::map<std::size_t, int> seen;
  for (const json& sample : json_["shown"]) {
    const std::string one = sample["text"];
    const std::vector<Segment> segments = segments_of(one);
    ASSERT_EQ(segments.size(), 2u) << one;
    std::set<std::string> words = segments[0].words;
    words.insert(segments[1].words.begin(), segments[1].words.end());
    words.erase("the");
    ASSERT_GE(words.size(), 1u) << one;
    ASSERT_LE(words.size(), 2u) << one;
    EXPECT_THAT(one,
                HasSubstr(fmt::format("\n  pair_labels       {}\n", words.size() - 1)));
    const int first = segments[0].tokens, second = segments[1].tokens;
    EXPECT_THAT(one, HasSubstr(fmt::format("\n  lengths           {}\n"
                                           "  token_types       0 x {}, 1 x {}",
                                           first + second, first, second)));
    ++seen[words.size() - 1];
  }
  EXPECT_GT(seen[0], 0);
  EXPECT_GT(seen[1], 0);
}

// A document of 58 tokens between [CLS] and its [SEP], and what has room of the next one.
TEST_F(InspectSamples, OfBertWithPackedDocuments) {
  corpus_of({fixture("uncased")});
  const std::string model =
      "model: {kind: bert, " + kSmall + "sequence: 64, binary_head: false}\n";
  const std::string tokens =
      "  tokens            \"[CLS] in the beginning god created the heaven and the "
      "earth. "
      "{[MASK]} the {[MASK]} {was} without form, and {void} ; and darkness was upon the "
      "face {[MASK]} {[MASK]} {deep}. and the spirit of god moved upon the {[MASK]} of "
      "the waters. and god said, let there be light : and {[MASK]} was light. [SEP] in "
      "{which} beginning [SEP]\"\n";
  const std::string predictions =
      "predictions, 10 positions\n"
      "  masked_positions  12, 14, 15, 20, 28 ... 30, 40, 55, 61\n"
      "  masked_labels     \" and\", \" earth\", \" was\", \" void\", \" of\", "
      "\" the\", \" deep\", \" face\", \" there\", \" the\"\n"
      "  masked_weights    1 x 10\n";
  EXPECT_EQ(shown(model + "data: {pack: true, reset_attention_mask: true, "
                          "reset_position_ids: true}"),
            "sample 0, window 0\n"
            "text, 64 positions\n" +
                tokens +
                "  positions         0 ... 59, 0 ... 3\n"
                "  lengths           64\n"
                "  token_types       0 x 64\n"
                "  document_begins   0 x 60, 60 x 4\n"
                "  document_ends     60 x 60, 64 x 4\n" +
                predictions);
  // Without documents kept apart: one text, and nothing said of documents.
  EXPECT_EQ(shown(model + "data: {pack: true}"),
            "sample 0, window 0\n"
            "text, 64 positions\n" +
                tokens +
                "  positions         0 ... 63\n"
                "  lengths           64\n"
                "  token_types       0 x 64\n" +
                predictions);
}

TEST_F(InspectSamples, OfT5) {
  corpus_of({fixture("unigram.model"), "--extra-ids", "100"});
  EXPECT_EQ(shown("model: {kind: t5, decoder_layers: 2, " + kSmall + "sequence: 24}", 2),
            "sample 0, window 10\n"
            "source, 24 positions\n"
            "  source          \"void; and darkness was upon the face of the deep. And "
            "the Spirit of God moved upon the face of<extra_id_0></s>\"\n"
            "  source_lengths  24\n"
            "target, 6 positions\n"
            "  target          \"<pad><extra_id_0> the waters. And\"\n"
            "  target_lengths  6\n"
            "  labels          \"<extra_id_0> the waters. And</s>\"\n"
            "  loss_mask       1 x 6\n"
            "\n"
            "sample 1, window 5\n"
            "source, 24 positions\n"
            "  source          \". And the earth was without form, and void; and "
            "darkness was upon the face of the deep.<extra_id_0></s>\"\n"
            "  source_lengths  24\n"
            "target, 6 positions\n"
            "  target          \"<pad><extra_id_0> And the Spirit of\"\n"
            "  target_lengths  6\n"
            "  labels          \"<extra_id_0> And the Spirit of</s>\"\n"
            "  loss_mask       1 x 6\n");
  EXPECT_EQ(json_["kind"], "t5");
  EXPECT_EQ(json_["shown"][1]["position"], 1);
}

// What a document's end leaves of a window, in both streams.
TEST_F(InspectSamples, OfT5WithoutPackedDocuments) {
  corpus_of({fixture("unigram.model"), "--extra-ids", "100"});
  EXPECT_THAT(shown("model: {kind: t5, decoder_layers: 2, " + kSmall +
                        "sequence: 24}\ndata: {pack: false}",
                    7),
              HasSubstr("sample 5, window 4\n"
                        "source, 24 positions\n"
                        "  source          \". And God said, Let there be light: and "
                        "there was<extra_id_0></s>\" and 9 of padding\n"
                        "  source_lengths  15\n"
                        "target, 6 positions\n"
                        "  target          \"<pad><extra_id_0> light.\" and 2 of "
                        "padding\n"
                        "  target_lengths  4\n"
                        "  labels          \"<extra_id_0> light.</s>\" and 2 of "
                        "padding\n"
                        "  loss_mask       1 x 4, 0 x 2\n"));
}

TEST_F(InspectSamples, Refused) {
  const auto refused = [&](const fs::path& of, const std::vector<std::string>& options,
                           const std::vector<std::string>& parts) {
    expect_refusal(inspect(of, options), parts);
  };
  refused(corpus(), {"--show", "0"}, {"--show", "0"});
  refused(corpus(), {"--show", "-1"}, {"--show", "-1"});
  refused(corpus(), {"--model-deck", deck()}, {"--model-deck", "--show"});
  refused(corpus(), {"--show", "1", "--deck"}, {"--show", "--deck"});
  refused(corpus(), {"--show", "1", "--set", "data.pack=true"},
          {"--set", "--model-deck"});
  refused(corpus(),
          {"--show", "1", "--model-deck", deck(), "--set", "data.train=other.h5"},
          {"--set data.train=other.h5", "the corpus that is inspected"});
  refused(corpus(), {"--show", "1", "--model-deck", scratch_ / "none.yaml"},
          {"none.yaml", "No such file"});
  refused(corpus(),
          {"--show", "1", "--model-deck", deck_of("model: {" + kSmall + "sequnce: 8}")},
          {"kind.yaml:1", "model.sequence"});
  refused(corpus(),
          {"--show", "1", "--model-deck",
           deck_of("model: {vocab: 20, " + kSmall + "sequence: 8}")},
          {"model.vocab", "corpus.h5", "300 tokens"});
  refused(
      corpus(),
      {"--show", "1", "--model-deck",
       deck_of("model: {kind: bert, " + kSmall + "sequence: 16}\ndata: {pairs: order}")},
      {"corpus.h5", "no sentences", "--sentences LANGUAGE"});
  refused(corpus(),
          {"--show", "1", "--model-deck",
           deck_of("model: {kind: t5, decoder_layers: 2, " + kSmall + "sequence: 16}")},
          {"corpus.h5", "has no sentinels"});
  ASSERT_EQ(train().status, 0);
  refused(run_dir(), {"--show", "1"}, {"is not a corpus", "--model-deck", "deck.yaml"});
  const fs::path shard = newest() / "index.h5";
  refused(shard, {"--show", "1"}, {"is not a corpus", "trireme tokenize"});

  // The deck of a run that has been trained on it is one to give.
  const RunResult result =
      inspect(corpus(), {"--show", "2", "--model-deck", run_dir() / "deck.yaml"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nsample 1, window "));
}

}  // namespace
}  // namespace trireme::test

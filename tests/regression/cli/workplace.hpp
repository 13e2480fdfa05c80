// What the tests of the program share: a place to work in, decks, corpora, and what every
// refusal must look like. Everything is made by the program itself, so that a test needs
// nothing of the library.
#ifndef TRIREME_REGRESSION_CLI_WORKPLACE_HPP_
#define TRIREME_REGRESSION_CLI_WORKPLACE_HPP_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "support/run_binary.hpp"
#include "unit/io/scratch.hpp"

namespace trireme::test {

namespace fs = std::filesystem;

inline fs::path source_file(const std::string& name) {
  const char* source = std::getenv("TRIREME_SOURCE_DIR");
  return fs::path(source != nullptr ? source : ".") / name;
}

// A tiny GPT-2 of transformers, as safetensors with its config.json.
inline fs::path hugging_face_fixture(const std::string& name) {
  return source_file("tests/parity/fixtures/" + name);
}

// Words in an order without much sense, the same every time.
inline std::string small_text(int words) {
  const std::vector<std::string> lexicon = {
      "the",   "oar",   "ship",  "sea",   "rower", "wind",    "and",   "sail",
      "three", "of",    "beats", "on",    "bank",  "trireme", "keel",  "harbour",
      "under", "white", "waves", "stern", "bows",  "night",   "moved", "quickly"};
  std::string text;
  unsigned state = 1;
  for (int i = 0; i < words; ++i) {
    state = state * 1664525u + 1013904223u;
    text += lexicon[(state >> 16) % lexicon.size()];
    text += i % 11 == 10 ? ".\n" : " ";
  }
  return text;
}

// Every file and directory below, to see what a failure has left behind.
inline std::set<std::string> tree(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    names.insert(entry.path().lexically_relative(directory).string());
  }
  return names;
}

// Runs the program under limits of the shell: "ulimit -f 16" (files of 8 KiB at most).
// MPI libraries keep their shared memory in files; one rank needs none.
inline RunResult trireme_limited(const std::string& limits,
                                 const std::vector<std::string>& arguments,
                                 const RunOptions& options = {}) {
  std::vector<std::string> command = {"/bin/sh", "-c", limits + "; exec \"$0\" \"$@\"",
                                      std::getenv("TRIREME_BINARY")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  RunOptions alone = options;
  alone.environment.emplace("UCX_TLS", "self");
  return run(command, alone);
}

// A message for people: all on stderr, one error, nothing of the machinery behind it.
inline void expect_error(const RunResult& result, int status,
                         const std::vector<std::string>& parts) {
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::Not;
  EXPECT_EQ(result.status, status) << result.out << result.err;
  // Warnings may come before it.
  EXPECT_THAT(result.err, testing::AnyOf(testing::StartsWith("trireme"),
                                         AllOf(testing::StartsWith("warning: "),
                                               HasSubstr("\ntrireme: "))));
  EXPECT_THAT(result.err, testing::EndsWith("\n"));
  for (const std::string& part : parts) EXPECT_THAT(result.err, HasSubstr(part));
  for (const char* machinery :
       {"terminate called", "what():", "HDF5-DIAG", "#000", "Kokkos::", "Fatal error",
        "exception", ".cpp:", ".hpp:", "errno 0", "{}"}) {
    EXPECT_THAT(result.err, Not(HasSubstr(machinery)));
  }
}

// The user's mistake: status 2 before any work, and nothing on stdout.
inline void expect_refusal(const RunResult& result,
                           const std::vector<std::string>& parts) {
  expect_error(result, 2, parts);
  EXPECT_THAT(result.out, testing::IsEmpty());
}

class Workplace : public testing::Test {
 protected:
  // Models this small gain nothing by threads, and lose much where cores are busy.
  Workplace() { ::setenv("OMP_NUM_THREADS", "1", 1); }

  // A corpus of 300 tokens' vocabulary; one for all tests of this executable.
  static const fs::path& corpus() {
    static const Scratch place;
    static const fs::path path = make_corpus(place.path(), "corpus.h5", 300, 6000);
    return path;
  }
  static fs::path make_corpus(const fs::path& directory, const std::string& name,
                              int vocabulary, int words) {
    spill(directory / (name + ".txt"), small_text(words));
    const fs::path path = directory / name;
    const RunResult result =
        trireme({"tokenize", "--train-bpe", std::to_string(vocabulary), "--out", path,
                 directory / (name + ".txt")});
    EXPECT_EQ(result.status, 0) << result.err;
    return path;
  }

  // Two steps of a small model of a kind, with more of the deck by `overrides`.
  RunResult train_kind(const std::string& kind, const fs::path& corpus,
                       const std::vector<std::string>& overrides = {},
                       const std::vector<std::string>& options = {},
                       int ranks = 0) const {
    const fs::path deck = scratch_ / (kind + ".yaml");
    spill(deck, "model: {kind: " + kind +
                    ", layers: 2, hidden: 32, heads: 4, sequence: 32}\n"
                    "data: {train: " +
                    corpus.string() +
                    "}\n"
                    "batch: {micro: 2, global: 4}\n"
                    "run: {steps: 2, dir: " +
                    run_dir().string() + "}\n");
    std::vector<std::string> arguments = {"train", deck};
    for (const std::string& text : overrides) {
      arguments.insert(arguments.end(), {"--set", text});
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    return ranks == 0 ? trireme(arguments) : trireme_on_ranks(ranks, arguments);
  }

  // A deck of a model with some 40,000 parameters, four steps, a checkpoint every two.
  fs::path deck(const std::string& more = "") const {
    const fs::path path = scratch_ / "small.yaml";
    spill(path,
          "model: {layers: 2, hidden: 32, heads: 4, sequence: 16, dropout: 0.0}\n"
          "data: {train: " +
              corpus().string() +
              "}\n"
              "batch: {micro: 2, global: 4}\n"
              "optimizer: {lr: 1.0e-3}\n"
              "run: {steps: 4, dir: " +
              run_dir().string() +
              ", log_every: 1}\n"
              "checkpoint: {every: 2}\n" +
              more);
    return path;
  }
  fs::path run_dir() const { return scratch_ / "run"; }
  fs::path newest() const { return run_dir() / "checkpoints/latest"; }

  // Trains the deck with these overrides (key=value) and other options.
  RunResult train(const std::vector<std::string>& overrides = {},
                  const std::vector<std::string>& options = {}) const {
    return trireme(train_arguments(overrides, options));
  }
  std::vector<std::string> train_arguments(
      const std::vector<std::string>& overrides,
      const std::vector<std::string>& options = {}) const {
    std::vector<std::string> arguments = {"train", deck()};
    for (const std::string& override_text : overrides) {
      arguments.insert(arguments.end(), {"--set", override_text});
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
  }

  Scratch scratch_;
};

}  // namespace trireme::test

#endif  // TRIREME_REGRESSION_CLI_WORKPLACE_HPP_

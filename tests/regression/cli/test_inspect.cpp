// `trireme inspect`: corpora, checkpoints and runs, whole and damaged.
#include <nlohmann/json.hpp>

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
                           "layers/1/mlp/", "96 x 32", "tensors of optimizer state"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
  // Single files of it are HDF5 like any other.
  const RunResult index = inspect(newest() / "index.h5");
  EXPECT_EQ(index.status, 0) << index.err;
  EXPECT_THAT(index.out, HasSubstr("HDF5 file"));
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

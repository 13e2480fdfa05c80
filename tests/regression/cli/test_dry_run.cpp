// `trireme train --dry-run`: checks the deck, prints parameters, FLOPs and memory, and
// makes neither a model nor a file.
#include <nlohmann/json.hpp>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

class DryRun : public Workplace {
 protected:
  json dry_run(std::vector<std::string> arguments, const RunOptions& options = {}) {
    const fs::path file = scratch_ / "dry.json";
    arguments.insert(arguments.begin(), "train");
    arguments.insert(arguments.end(), {"--dry-run", "--json", file});
    const RunResult result = trireme(arguments, options);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    out_ = result.out;
    return json::parse(slurp(file));
  }
  std::string out_;
};

TEST_F(DryRun, TellsWhatARunTakes) {
  const json result = dry_run({deck()});
  // V h + s h + L (12 h^2 + 13 h) + 2 h, with the vocabulary of the corpus.
  const std::int64_t h = 32,
                     parameters = 300 * h + 16 * h + 2 * (12 * h * h + 13 * h) + 2 * h;
  EXPECT_EQ(result["parameters"], parameters);
  EXPECT_THAT(out_, HasSubstr("is valid"));
  EXPECT_THAT(out_, HasSubstr("35,584"));
  // A step's FLOPs, with attention counted in full: 6 per matrix element and token, 12 L
  // s h per token for scores and values.
  const double tokens = 4 * 16;
  const double matrices = 2 * 12.0 * h * h + 300.0 * h;
  EXPECT_DOUBLE_EQ(result["flops"]["model"].get<double>(),
                   tokens * (6 * matrices + 12.0 * 2 * 16 * h));
  const json& stage = result["memory"]["stages"][0];
  EXPECT_GE(stage["weights"].get<double>(), 4.0 * static_cast<double>(parameters));
  EXPECT_GE(stage["optimizer"].get<double>(), 8.0 * static_cast<double>(parameters));
  std::int64_t sum = 0;
  for (const char* part :
       {"weights", "gradients", "optimizer", "activations", "scratch", "batch"}) {
    EXPECT_GT(stage[part].get<std::int64_t>(), 0) << part;
    sum += stage[part].get<std::int64_t>();
  }
  EXPECT_EQ(stage["total"], sum);
  for (const char* word : {"parameters", "model FLOPs", "hardware FLOPs", "weights",
                           "gradients", "optimizer state", "saved: ", "total"}) {
    EXPECT_THAT(out_, HasSubstr(word));
  }
  EXPECT_FALSE(fs::exists(run_dir()));
}

// Published sizes; no corpus is there, and the largest model's state would take 25 GB.
TEST_F(DryRun, DecksOfTheProject) {
  const std::vector<std::pair<std::string, std::int64_t>> decks = {
      {"gpt2-124m", 124439808},
      {"gpt2-355m", 354823168},
      {"gpt2-774m", 774030080},
      {"gpt2-1.5b", 1557611200}};
  for (const auto& [name, parameters] : decks) {
    const json result = dry_run({source_file("inputs/gpt/" + name + ".yaml")},
                                {.directory = scratch_.path()});
    EXPECT_EQ(result["parameters"], parameters) << name;
    EXPECT_EQ(result["memory"]["stages"][0]["weights"], 4 * parameters) << name;
  }
}

TEST_F(DryRun, DoesNotAllocateTheModel) {
  // GPT-3's shape, 2.8 TB of state, in 3 GB of address space.
  const RunResult result = trireme_limited(
      "ulimit -v 3000000",
      {"train", source_file("inputs/gpt/gpt2-1.5b.yaml"), "--dry-run", "--set",
       "model.layers=96", "--set", "model.hidden=12288", "--set", "model.heads=96",
       "--set", "model.ffn_hidden=49152", "--set", "model.sequence=2048"},
      {.directory = scratch_.path()});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("174,604,259,328"));  // 174.6 billion
}

TEST_F(DryRun, RanksAndWhatIsNotTrainedYet) {
  const json result = dry_run({deck(), "--set", "precision.compute=bf16", "--set",
                               "parallel.data=2", "--ranks", "2"});
  EXPECT_EQ(result["ranks"], 2);
  EXPECT_EQ(result["grid"]["data"], 2);
  expect_refusal(train({"parallel.data=3"}, {"--dry-run", "--ranks", "2"}),
                 {"parallel.data", "3 ranks", "there are 2"});
}

TEST_F(DryRun, VocabularyWithoutACorpus) {
  expect_refusal(train({"data.train=none"}, {"--dry-run"}),
                 {"model.vocab", "data.train"});
  expect_refusal(train({"data.train=none.h5"}, {"--dry-run"}),
                 {"none.h5", "does not exist"});
  const json result =
      dry_run({deck(), "--set", "data.train=none.h5", "--set", "model.vocab=300"});
  EXPECT_EQ(result["parameters"], 35584);
}

}  // namespace
}  // namespace trireme::test

// The table of a dry run on a GPU: what libraries take is among its categories and in its
// total. A host's plan is given to a GPU that is made up.
#include "plan/dry_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/load.hpp"

namespace trireme::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;

DryRun dry_run_of(const std::vector<LibraryBytes>& stages) {
  DryRun run;
  run.deck = config::parse(
      "model: {kind: gpt, layers: 4, hidden: 64, heads: 4, sequence: 32, vocab: 1000}\n"
      "data: {train: corpus.h5}\n"
      "batch: {micro: 4, global: 64}\n"
      "run: {steps: 10}\n",
      "deck",
      {.overrides = {"parallel.pipeline=" + std::to_string(stages.size())},
       .ranks = static_cast<int>(stages.size())});
  for (const LibraryBytes& libraries : stages) {
    DryRun::Stage stage;
    stage.number = static_cast<int>(run.stages.size());
    stage.memory.weights = 100 * kMiB;
    stage.memory.products = 32 * kMiB;
    stage.libraries = libraries;
    run.stages.push_back(stage);
  }
  return run;
}

TEST(DryRunTable, HasWhatLibrariesTakeOfAGpu) {
  const DryRun run = dry_run_of({{.messages = 441 * kMiB, .context = 640 * kMiB}});
  EXPECT_THAT(run.text(),
              HasSubstr("  matrix products         32.0 MiB, cuBLASLt's workspace\n"
                        "  messages                441.0 MiB, NCCL's buffers, estimated\n"
                        "  context                 640.0 MiB, CUDA's, estimated\n"
                        "  total                   1.2 GiB of a GPU\n"));
  const auto stage = nlohmann::json::parse(run.json())["memory"]["stages"][0];
  EXPECT_EQ(stage["messages"], 441 * kMiB);
  EXPECT_EQ(stage["context"], 640 * kMiB);
  EXPECT_EQ(stage["total"], 132 * kMiB);
  EXPECT_EQ(stage["device_total"], 1213 * kMiB);
}

TEST(DryRunTable, SaysWhatTheModelIs) {
  DryRun run = dry_run_of({{}});
  run.parameters = 216192;
  EXPECT_THAT(run.text(), HasSubstr("\nmodel\n"
                                    "  parameters              216,192 (216k)\n"
                                    "  layers x hidden x heads 4 x 64 x 4\n"
                                    "  sequence, vocabulary    32, 1,000\n"
                                    "\nstep\n"));
}

TEST(DryRunTable, OnAHostHasNone) {
  const DryRun run = dry_run_of({{}});
  EXPECT_THAT(run.text(), AllOf(HasSubstr("  total                   132.0 MiB\n"),
                                HasSubstr(", by the instructions and threads here"),
                                Not(HasSubstr("NCCL")), Not(HasSubstr("CUDA"))));
}

// The stage that takes most is told by all that it takes.
TEST(DryRunTable, OfStagesCountsThemToo) {
  const DryRun run = dry_run_of({{.messages = 0, .context = 640 * kMiB},
                                 {.messages = 80 * kMiB, .context = 640 * kMiB}});
  EXPECT_THAT(run.text(),
              AllOf(HasSubstr("memory of each rank of stage 1, which takes most"),
                    HasSubstr("772.0 MiB"), HasSubstr("852.0 MiB of a GPU")));
}

}  // namespace
}  // namespace trireme::plan

// A checkpoint of any layout, in any number of files: the same layout goes on to the bit,
// another one with the same losses as one rank that never stopped.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "config/load.hpp"
#include "restart/gpt_layouts.hpp"
#include "restart/kind_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LayoutsRestart : public GptLayouts {};

TEST_F(LayoutsRestart, ToTheBitOrToTheRounding) {
  for (const auto& [name, layout] : layouts_) {
    SCOPED_TRACE(name);
    start(name + "-whole", name);
    start_half(name);
    start(name + "-rest", name, {"--resume", name});
    expect_same_checkpoint(newest(name + "-whole"), newest(name + "-rest"));
    if (layout.files > 0) {
      EXPECT_EQ(shards_of(newest(name)), layout.files);
    }
  }
  // Further ones: tests/long/test_layout_restarts.cpp.
  expect_crossings({{"one", "eight"},
                    {"eight", "zero3"},
                    {"zero3", "tensor"},
                    {"tensor", "uneven"},
                    {"uneven", "tensor4"},
                    {"tensor4", "one"},
                    {"data", "chunks"},
                    {"chunks", "data"},
                    {"zero2", "tensor-zero3"},
                    {"tensor-zero2", "pipeline-zero2"},
                    {"pipeline-zero2", "pipeline-zero3"},
                    {"pipeline-zero3", "data"},
                    {"pipeline-zero1", "zero2"}});
}

// What was measured once decides what is where for the rest of the run: to the bit the
// run that was told so by its deck.
TEST_F(LayoutsRestart, KeepMeasuredStages) {
  const Arguments keys = {"--set", "model.layers=4",     "--set", "run.sample_every=0",
                          "--set", "parallel.pipeline=2"};
  const auto train_on_two = [&](const std::string& run, const Arguments& more) {
    Arguments arguments = {"train", "deck.yaml", "--run-dir", run, "--resume", "auto"};
    arguments.insert(arguments.end(), keys.begin(), keys.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(2, arguments, options(1));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const auto stages = [&](const std::string& run) {
    const ckpt::CheckpointReader checkpoint(newest(run));
    return config::parse_resolved(checkpoint.state().deck).parallel.stages;
  };
  const Arguments measured = {"--set", "parallel.balance=measured"};
  Arguments first = measured;
  first.insert(first.end(), {"--set", "run.stop_after=5"});
  EXPECT_THAT(train_on_two("run", first), HasSubstr("parallel.balance: measured."));
  const std::vector<index_t> found = stages("run");
  ASSERT_EQ(found.size(), 2u);
  const std::string rest = train_on_two("run", measured);
  EXPECT_THAT(rest, Not(AnyOf(HasSubstr("parallel.balance: measured."),
                              HasSubstr("parallel.stages:"))));
  EXPECT_EQ(stages("run"), found);

  train_on_two("told",
               {"--set", fmt::format("parallel.stages=[{}, {}]", found[0], found[1])});
  expect_same_checkpoint(newest("told"), newest("run"));
}

// So it is of other kinds, whose blocks are more: BERT's heads beside its words' one, and
// of T5 two stacks of layers with a norm and an embedding between them.
class LayoutsOfKinds : public KindRuns {
 protected:
  // `timed`: some of the blocks whose times are told.
  void expect_measured_stages(const RestartedModel& of,
                              const std::vector<std::string>& timed) {
    prepare(of);
    Layout two_stages{4,
                      {"parallel.tensor=2", "parallel.sequence=true",
                       "parallel.pipeline=2", "parallel.schedule=zero_bubble"}};
    layouts_["measured"] = layouts_["told"] = two_stages;
    layouts_["measured"].keys.push_back("parallel.balance=measured");
    train_whole("one");
    const std::string told = start("measured", "measured");
    EXPECT_THAT(told, HasSubstr("parallel.balance: measured."));
    for (const std::string& block : timed) {
      EXPECT_THAT(told, ContainsRegex(block + "[ \n]+[0-9.e+-]+[ \n]+ms"));
    }
    expect_losses_of("one", "measured", 0);
    expect_same_again("measured");
    const std::vector<index_t> found = stages_of("measured");
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0] + found[1], 4);
    EXPECT_EQ(stages_of("measured-measured"), found);
    layouts_["told"].keys.push_back(
        fmt::format("parallel.stages=[{}, {}]", found[0], found[1]));
    train_whole("told");
    expect_same_checkpoint(newest("told"), newest("measured"));
  }
  std::vector<index_t> stages_of(const std::string& run) const {
    const ckpt::CheckpointReader checkpoint(newest(run));
    return config::parse_resolved(checkpoint.state().deck).parallel.stages;
  }
};

TEST_F(LayoutsOfKinds, KeepMeasuredStagesOfBert) {
  expect_measured_stages(kBert, {"embedding", "layers/0", "masked_head"});
}

TEST_F(LayoutsOfKinds, KeepMeasuredStagesOfT5) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_measured_stages(kT5, {"encoder/layers/0", "decoder/layers/0", "head"});
}

}  // namespace
}  // namespace trireme::test

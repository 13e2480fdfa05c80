// Runs that compute in 16 bits, by the program: restarts to the bit, restarts from one
// type into another, and the loss scale of fp16 in records and checkpoints.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PrecisionOfRuns : public TrainingRuns {
 protected:
  // One start with these keys set; what it says.
  std::string start(const std::string& run, const Arguments& keys,
                    const Arguments& more = {}, int ranks = 1) const {
    Arguments arguments = {"train", "deck.yaml", "--run-dir", run};
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme_on_ranks(ranks, arguments, options(1));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out + result.err;
  }
  double last_loss(const std::string& run) const {
    return metrics(run).steps.back().loss;
  }
  // Lines of train.jsonl, as they stand there.
  std::vector<nlohmann::json> lines(const std::string& run) const {
    std::vector<nlohmann::json> all;
    std::istringstream text(io::read_file(scratch_ / run / "train.jsonl"));
    for (std::string line; std::getline(text, line);) {
      nlohmann::json json = nlohmann::json::parse(line);
      if (json.contains("step") && json.contains("loss_scale")) all.push_back(json);
    }
    return all;
  }
};

TEST_F(PrecisionOfRuns, EqualsOneGo) {
  struct Case {
    std::string name;
    Arguments keys;
    int ranks = 1;
  };
  for (const Case& of :
       {Case{"bf16", {"precision.compute=bf16"}},
        // The scale doubles after three steps: it is in the middle of that at the
        // restart.
        Case{"fp16",
             {"precision.compute=fp16", "precision.loss_scale.initial=1024",
              "precision.loss_scale.window=3"}},
        Case{"gradients",
             {"precision.compute=bf16", "precision.gradients=bf16", "parallel.zero=2",
              "batch.micro=1"},
             2}}) {
    SCOPED_TRACE(of.name);
    Arguments few = of.keys;
    few.push_back("run.steps=5");
    const std::string whole = "whole_" + of.name, parts = "parts_" + whole;
    start(whole, of.keys, {}, of.ranks);
    start(parts, few, {}, of.ranks);
    start(parts, of.keys, {"--resume", "auto"}, of.ranks);
    expect_same_checkpoint(newest(whole), newest(parts));
    expect_same_metrics(whole, parts, 13);
  }
}

// Where ranks share the master weights or what is read of them, a start has to fetch the
// other ranks' parts before its first step.
TEST_F(PrecisionOfRuns, EqualsOneGoOnSharedWeights) {
  struct Case {
    std::string name;
    int ranks;
    Arguments layout;
  };
  for (const Case& of :
       {Case{"zero_1", 3, {"parallel.zero=1"}}, Case{"zero_2", 3, {"parallel.zero=2"}},
        Case{"tensor_2_zero_3", 4, {"parallel.tensor=2", "parallel.zero=3"}}}) {
    SCOPED_TRACE(of.name);
    Arguments keys = {"precision.compute=bf16", "batch.micro=1", "run.steps=4",
                      "run.sample_every=0", "optimizer.decay=13"};
    keys.insert(keys.end(), of.layout.begin(), of.layout.end());
    Arguments few = keys;
    few.push_back("run.stop_after=2");
    const std::string whole = "whole_" + of.name, parts = "parts_" + of.name;
    start(whole, keys, {}, of.ranks);
    start(parts, few, {}, of.ranks);
    start(parts, keys, {"--resume", "auto"}, of.ranks);
    expect_same_checkpoint(newest(whole), newest(parts), Place::middle);
    expect_same_metrics(whole, parts, 4);
  }
}

// Master weights and moments are fp32 whatever the type: each start goes on with what the
// one before left. The whole way in fp32 is the measure.
TEST_F(PrecisionOfRuns, FromEachTypeToEachOther) {
  start("wide", {});
  start("mixed", {"run.stop_after=4"});
  EXPECT_THAT(start("mixed", {"precision.compute=bf16", "run.stop_after=3"},
                    {"--resume", "auto"}),
              HasSubstr("precision.compute: fp32 -> bf16"));
  EXPECT_THAT(start("mixed",
                    {"precision.compute=fp16", "precision.loss_scale.initial=512",
                     "run.stop_after=3"},
                    {"--resume", "auto"}),
              HasSubstr("precision.compute: bf16 -> fp16"));
  EXPECT_EQ(ckpt::CheckpointReader(newest("mixed")).state().loss_scale, 512.0);
  EXPECT_THAT(start("mixed", {}, {"--resume", "auto"}),
              HasSubstr("precision.compute: fp16 -> fp32"));
  EXPECT_EQ(ckpt::CheckpointReader(newest("mixed")).state().loss_scale, 1.0);
  ASSERT_EQ(metrics("mixed").steps.size(), 13u);
  EXPECT_NEAR(last_loss("mixed"), last_loss("wide"), 0.01 * last_loss("wide"));
  EXPECT_NE(last_loss("mixed"), last_loss("wide"));
}

// Gradients are in no checkpoint: their type may change from start to start.
TEST_F(PrecisionOfRuns, GradientsChangeTheirType) {
  const Arguments wide = {"precision.compute=bf16"};
  const Arguments narrow = {"precision.compute=bf16", "precision.gradients=bf16"};
  start("plain", wide);
  Arguments few = wide;
  few.push_back("run.stop_after=4");
  start("changed", few);
  const std::string said = start("changed", narrow, {"--resume", "auto"});
  EXPECT_THAT(said, AllOf(HasSubstr("precision.gradients: fp32 -> bf16"),
                          HasSubstr("bf16, gradients bf16")));
  ASSERT_EQ(metrics("changed").steps.size(), 13u);
  EXPECT_NEAR(last_loss("changed"), last_loss("plain"), 4e-3 * last_loss("plain"));
  EXPECT_NE(last_loss("changed"), last_loss("plain"));
  const RunResult refused = train("refused", {"--set", "precision.gradients=bf16"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("goes with precision.compute: bf16 alone"));
}

TEST_F(PrecisionOfRuns, AcrossLayouts) {
  const Arguments bf16 = {"precision.compute=bf16"};
  start("alone", bf16);
  start(
      "moved",
      {"precision.compute=bf16", "parallel.zero=2", "batch.micro=1", "run.stop_after=5"},
      {}, 2);
  start("moved", {"precision.compute=bf16", "parallel.tensor=2", "run.stop_after=4"},
        {"--resume", "auto"}, 2);
  start("moved", bf16, {"--resume", "auto"});
  EXPECT_NEAR(last_loss("moved"), last_loss("alone"), 4e-3 * last_loss("alone"));
}

// The first scale is too large for gradients of fp16: steps are left out until it fits,
// and after two that are not it grows again. Megatron's rules with a hysteresis of 2: the
// first overflow leaves the scale, those after it halve it, until it has grown.
TEST_F(PrecisionOfRuns, OverflowsAreSkippedAndRecorded) {
  const Arguments keys = {"precision.compute=fp16", "precision.loss_scale.initial=4.0e+6",
                          "precision.loss_scale.window=2"};
  const std::string said = start("scaled", keys);
  EXPECT_THAT(said, AllOf(HasSubstr("step 1: a gradient overflowed; weights are left"),
                          HasSubstr("step 2: a gradient overflowed; weights are left"),
                          HasSubstr("stays at"), HasSubstr("is now")));
  EXPECT_THAT(said, HasSubstr("products of fp16 are computed by widening"));
  const auto records = lines("scaled");
  ASSERT_EQ(records.size(), 13u);
  // The schedule's learning rate follows updates: a step's is that of the update which it
  // makes or leaves out, and which a run without overflows reaches earlier.
  start("plain", {"precision.compute=fp16", "precision.loss_scale.initial=256"});
  const auto plain = lines("plain");
  std::int64_t samples = 0, skipped = 0;
  std::size_t updates = 0;
  double scale = 4e6;
  int finite = 0, left = 2, growths = 0;
  for (const auto& record : records) {
    EXPECT_TRUE(record["loss"].is_number()) << record;
    EXPECT_TRUE(std::isfinite(record["loss"].get<double>())) << record;
    const bool is_skipped = record["skipped"] == 1;
    skipped += is_skipped ? 1 : 0;
    EXPECT_EQ(record["lr"], plain.at(updates)["lr"]) << record;
    updates += is_skipped ? 0 : 1;
    EXPECT_EQ(record["grad_norm"].is_null(), is_skipped) << record;
    finite = is_skipped ? 0 : finite + 1;
    left -= is_skipped ? 1 : 0;
    if (is_skipped && left <= 0) scale /= 2.0;
    if (finite == 2) {
      scale *= 2.0;
      finite = 0;
      left = 2;
      ++growths;
    }
    EXPECT_EQ(record["loss_scale"].get<double>(), scale) << record;
    EXPECT_EQ(record["samples"].get<std::int64_t>(), samples += 6) << record;
  }
  EXPECT_GE(skipped, 2);
  EXPECT_GE(growths, 1);
  const ckpt::TrainingState state = ckpt::CheckpointReader(newest("scaled")).state();
  EXPECT_EQ(state.skipped_steps, skipped);
}

// Planted on one of two ranks: both skip the step, weights go on from where they were.
TEST_F(PrecisionOfRuns, APlantedOverflowSkipsOneStep) {
  for (const char* layout : {"parallel.zero=0", "parallel.zero=2", "parallel.tensor=2",
                             "parallel.pipeline=2"}) {
    SCOPED_TRACE(layout);
    const std::string run = std::string("planted_") + layout;
    const std::string said = start(
        run,
        {"precision.compute=fp16", "precision.loss_scale.initial=256", layout,
         "batch.micro=1", "run.sample_every=0", "run.steps=6", "optimizer.decay=13"},
        {"--fault", "overflow:phase=step,rank=1,step=4"}, 2);
    EXPECT_THAT(said, HasSubstr("step 4: a gradient overflowed"));
    const auto records = lines(run);
    ASSERT_EQ(records.size(), 6u);
    for (const auto& record : records) {
      EXPECT_EQ(record["skipped"], record["step"] == 4 ? 1 : 0) << record;
    }
    EXPECT_EQ(records[4]["lr"], records[3]["lr"]);
  }
  const RunResult wide = train("wide", {"--fault", "overflow:phase=step,step=2"});
  EXPECT_EQ(wide.status, 1);
  EXPECT_THAT(wide.err, AllOf(HasSubstr("step 2: the loss is "), HasSubstr("inf")));
}

TEST_F(PrecisionOfRuns, AConstantScaleStays) {
  const Arguments keys = {"precision.compute=fp16", "precision.loss_scale.dynamic=false",
                          "precision.loss_scale.initial=128"};
  EXPECT_THAT(start("constant", keys), Not(HasSubstr("overflow")));
  for (const auto& record : lines("constant")) EXPECT_EQ(record["loss_scale"], 128.0);
}

// A constant scale that never fits ends the run, across a restart too, instead of
// training nothing with status 0.
TEST_F(PrecisionOfRuns, AConstantScaleThatNeverFitsEndsTheRun) {
  write_deck("long.yaml", 20);
  const Arguments keys = {"--set", "precision.compute=fp16",
                          "--set", "precision.loss_scale.dynamic=false",
                          "--set", "precision.loss_scale.initial=1.0e+12"};
  Arguments first = keys;
  first.insert(first.end(), {"--set", "run.stop_after=10"});
  ASSERT_EQ(train("unfit", first, "long.yaml").status, 0);
  EXPECT_EQ(ckpt::CheckpointReader(newest("unfit")).state().skipped_steps, 10);
  Arguments second = keys;
  second.insert(second.end(), {"--resume", "auto"});
  const RunResult result = train("unfit", second, "long.yaml");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("step 16: the loss is "),
                                HasSubstr("16 steps in a row overflowed at the constant"),
                                HasSubstr("precision.loss_scale.dynamic: true")));
}

// What a start changes of the scale's rules is what the next steps go by, and is said.
TEST_F(PrecisionOfRuns, ARestartMayChangeTheScale) {
  const std::string fp16 = "precision.compute=fp16";
  const auto scale = [&] {
    return ckpt::CheckpointReader(newest("changed")).state().loss_scale;
  };
  start("changed", {fp16, "run.stop_after=4"});
  const double first = scale();
  EXPECT_THAT(
      start("changed", {fp16, "precision.loss_scale.dynamic=false", "run.stop_after=3"},
            {"--resume", "auto"}),
      HasSubstr("the loss scale stays at "));
  EXPECT_EQ(scale(), first);
  EXPECT_THAT(
      start("changed", {fp16, "precision.loss_scale.initial=512", "run.stop_after=3"},
            {"--resume", "auto"}),
      HasSubstr("the loss scale is 512 from step 8 on"));
  EXPECT_EQ(scale(), 512.0);
}

TEST_F(PrecisionOfRuns, KeysThatTheTypeHasNoUseForAreSaid) {
  EXPECT_THAT(start("idle", {"precision.gemm=widened", "run.stop_after=1"}),
              HasSubstr("without effect: precision.gemm."));
  EXPECT_THAT(start("idle",
                    {"precision.compute=bf16", "precision.loss_scale.initial=512",
                     "run.stop_after=1"},
                    {"--resume", "auto"}),
              HasSubstr("without effect: precision.loss_scale.initial. Only fp16"));
}

// Where no smaller scale is left, what overflows is no matter of the scale.
TEST_F(PrecisionOfRuns, AtTheLeastScaleTheRunEnds) {
  const RunResult result =
      train("stuck", {"--set", "precision.compute=fp16", "--set",
                      "precision.loss_scale.initial=1.0e+12", "--set",
                      "precision.loss_scale.minimum=1.0e+12"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("step 1: the loss is "),
                                HasSubstr("precision.loss_scale.minimum"),
                                HasSubstr("precision.compute: bf16")));
}

}  // namespace
}  // namespace trireme::test

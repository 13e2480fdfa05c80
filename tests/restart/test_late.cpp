// Runs whose copies come late, as on a GPU (base/late_queue.hpp): reports are read a step
// late and checkpoints are copied beside the next step, and nobody sees a difference.
#include <string>
#include <vector>

#include "restart/kind_runs.hpp"
#include "restart/training_runs.hpp"

namespace trireme::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LateRuns : public TrainingRuns {
 protected:
  // Few of the steps are read at once.
  LateRuns() { keys_ = {"run.validate_every=9", "run.sample_every=0"}; }

  RunResult start(const std::string& run, const Arguments& keys,
                  const Arguments& more = {}, int ranks = 1) const {
    Arguments arguments = {"train", "deck.yaml", "--run-dir", run};
    for (const std::string& key : keys_)
      arguments.insert(arguments.end(), {"--set", key});
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme_on_ranks(ranks, arguments, options(1));
  }

  Arguments keys_;
};

TEST_F(LateRuns, AreTheSameRuns) {
  struct Case {
    std::string name;
    Arguments keys;
    Arguments more = {};
    int ranks = 1;
  };
  // An overflow in fp16 leaves a step out: that the next one has the same number, another
  // loss scale and the same learning rate, the device finds out by itself.
  const Arguments overflows = {"--fault",
                               "overflow:phase=step,step=3;overflow:phase=step,step=4;"
                               "overflow:phase=step,step=8"};
  for (const Case& of :
       {Case{"fp32", {}}, Case{"zero_1", {"parallel.zero=1", "batch.micro=1"}, {}, 2},
        Case{"zero_3",
             {"parallel.zero=3", "batch.micro=1", "precision.compute=bf16"},
             {},
             2},
        Case{"pipeline", {"parallel.pipeline=2"}, {}, 2},
        Case{"fp16",
             {"precision.compute=fp16", "precision.loss_scale.initial=1024",
              "precision.loss_scale.window=3"},
             overflows},
        Case{"constant_scale",
             {"precision.compute=fp16", "precision.loss_scale.dynamic=false",
              "precision.loss_scale.initial=1024"},
             overflows}}) {
    SCOPED_TRACE(of.name);
    const std::string plain = "plain_" + of.name, late = "late_" + of.name;
    Arguments more = of.more;
    EXPECT_EQ(start(plain, of.keys, more, of.ranks).status, 0);
    more.push_back("--late");
    const RunResult result = start(late, of.keys, more, of.ranks);
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* step : {"step_00000005", "step_00000010", "step_00000013"}) {
      expect_same_checkpoint(scratch_ / plain / "checkpoints" / step,
                             scratch_ / late / "checkpoints" / step);
    }
    expect_same_metrics(plain, late, 13);
  }
}

// Step 8 was launched when the report of step 7 said that this was not finite. It changed
// nothing: what is saved for study is the state before step 7.
TEST_F(LateRuns, EndWhereAStepIsNotFinite) {
  for (const char* mode : {"plain", "late"}) {
    Arguments more = {"--fault", "overflow:phase=step,step=7"};
    if (mode == std::string("late")) more.push_back("--late");
    const RunResult result = start(mode, {}, more);
    EXPECT_EQ(result.status, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("step 7: the loss is"),
                                  HasSubstr("The state before the step is in")));
    EXPECT_EQ(metrics(mode).steps.size(), 6u);
  }
  expect_same_checkpoint(scratch_ / "plain" / "failed" / "step_00000006",
                         scratch_ / "late" / "failed" / "step_00000006");
}

TEST_F(LateRuns, GoOnWhereTheyStopped) {
  EXPECT_EQ(start("whole", {}).status, 0);
  EXPECT_EQ(start("parts", {"run.stop_after=7"}, {"--late"}).status, 0);
  EXPECT_EQ(start("parts", {}, {"--resume", "auto", "--late"}).status, 0);
  expect_same_checkpoint(newest("whole"), newest("parts"));
  expect_same_metrics("whole", "parts", 13);
}

// Of a BERT and a T5: fields of several streams are copied to the device beside steps,
// and an encoder's output goes on from stage to stage.
class LateKinds : public KindRuns {
 protected:
  void expect_same_runs(const RestartedModel& of) {
    prepare(of, {"run.validate_every=7"});
    for (const char* const layout : {"chunks", "zero3"}) {
      SCOPED_TRACE(layout);
      const std::string late = std::string("late_") + layout;
      train_whole(layout);
      start(late, layout, {"--late"});
      for (const char* step : {"step_00000003", "step_00000006", "step_00000008"}) {
        expect_same_checkpoint(scratch_ / layout / "checkpoints" / step,
                               scratch_ / late / "checkpoints" / step);
      }
      expect_same_metrics(layout, late, kSteps);
    }
  }
};

TEST_F(LateKinds, AreTheSameRunsOfBert) {
  expect_same_runs(kBert);
}

TEST_F(LateKinds, AreTheSameRunsOfT5) {
  if (!kT5.can_be_trained()) GTEST_SKIP() << "a build without SentencePiece";
  expect_same_runs(kT5);
}

}  // namespace
}  // namespace trireme::test

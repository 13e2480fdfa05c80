// run.tensorboard: what TensorBoard's own readers make of a run's event files is what
// train.jsonl says, each step once, over a start that stops, one that is killed, and one
// that goes on from before the steps of that one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class TrainTensorboard : public Workplace {
 protected:
  fs::path event_directory() const { return run_dir() / "tensorboard"; }
  std::vector<std::string> event_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(event_directory())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // {tag: [[step, value], ...]}, of the system's Python: a distribution's packages belong
  // to that.
  json curves() const {
    const RunResult read =
        run({"/usr/bin/python3", "-B", source_file("tests/regression/cli/read_events.py"),
             event_directory()});
    EXPECT_EQ(read.status, 0) << read.err;
    return read.status == 0 ? json::parse(read.out) : json();
  }
  std::vector<json> records() const {
    std::vector<json> all;
    std::istringstream lines(slurp(run_dir() / "train.jsonl"));
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
  // The same from train.jsonl: event files have numbers as floats, and NaN for null.
  json curves_of_records() const {
    json curves = json::object();
    for (const json& record : records()) {
      const bool is_step = !record.contains("validation");
      const json& fields = is_step ? record : record["validation"];
      for (const auto& [name, value] : fields.items()) {
        if (name == "step" || value.is_string()) continue;
        json number = "nan";
        if (value.is_number()) number = static_cast<float>(value.get<double>());
        json& curve = curves[(is_step ? "train/" : "validation/") + name];
        curve.push_back(json::array({fields["step"], number}));
      }
    }
    return curves;
  }
  static std::vector<int> steps_of(const json& curve) {
    std::vector<int> steps;
    for (const json& point : curve) steps.push_back(point[0]);
    return steps;
  }
};

TEST_F(TrainTensorboard, ShowsWhatTheRecordsSay) {
  ASSERT_EQ(train({"run.tensorboard=true", "run.validate_every=2"}).status, 0);
  EXPECT_THAT(event_files(),
              testing::ElementsAre(MatchesRegex("events.out.tfevents.[0-9]+\\..+\\.1")));
  const json curves = this->curves();
  EXPECT_EQ(curves, curves_of_records());
  EXPECT_THAT(steps_of(curves["train/loss"]), testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(steps_of(curves["validation/loss"]), testing::ElementsAre(2, 4));
  for (const char* tag : {"train/lr", "train/grad_norm", "train/tokens_per_second",
                          "train/model_tflops", "validation/perplexity"}) {
    EXPECT_TRUE(curves.contains(tag)) << tag;
  }
}

TEST_F(TrainTensorboard, HasEachStepOnceOverAllStarts) {
  const std::vector<std::string> keys = {"run.tensorboard=true", "run.steps=12",
                                         "run.validate_every=5", "checkpoint.every=4",
                                         "checkpoint.async=false"};
  const auto with = [&](const std::string& key) {
    std::vector<std::string> all = keys;
    all.push_back(key);
    return all;
  };
  ASSERT_EQ(train(with("run.stop_after=4")).status, 0);
  EXPECT_THAT(steps_of(curves()["train/loss"]), testing::ElementsAre(1, 2, 3, 4));
  // Killed behind the records of steps 5 to 7, which no checkpoint has.
  EXPECT_NE(train(keys, {"--resume", "auto", "--fault", "kill:phase=step,step=8"}).status,
            0);
  EXPECT_THAT(steps_of(curves()["train/loss"]),
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(steps_of(curves()["validation/loss"]), testing::ElementsAre(5));
  // One step further on, by two ranks: what was taken back is no longer shown.
  std::vector<std::string> arguments =
      train_arguments(with("run.stop_after=1"), {"--resume", "auto"});
  const RunResult ranks = trireme_on_ranks(2, arguments);
  ASSERT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_THAT(steps_of(curves()["train/loss"]), testing::ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(curves(), curves_of_records());
  ASSERT_EQ(train(keys, {"--resume", "auto"}).status, 0);
  const json whole = curves();
  EXPECT_EQ(whole, curves_of_records());
  EXPECT_EQ(steps_of(whole["train/loss"]).size(), 12u);
  EXPECT_THAT(steps_of(whole["validation/loss"]), testing::ElementsAre(5, 10, 12));
  EXPECT_EQ(event_files().size(), 4u);
  // An earlier checkpoint: later steps are taken back.
  ASSERT_EQ(train(with("run.stop_after=1"),
                  {"--resume", run_dir() / "checkpoints/step_00000008"})
                .status,
            0);
  EXPECT_EQ(curves(), curves_of_records());
  EXPECT_EQ(steps_of(curves()["train/loss"]).back(), 9);
}

// A run that was killed before its first checkpoint begins anew.
TEST_F(TrainTensorboard, BeginsAnewWithTheRun) {
  EXPECT_NE(train({"run.tensorboard=true", "checkpoint.every=0"},
                  {"--fault", "kill:phase=step,step=4"})
                .status,
            0);
  EXPECT_THAT(steps_of(curves()["train/loss"]), testing::ElementsAre(1, 2, 3));
  const RunResult again =
      train({"run.tensorboard=true", "run.log_every=2"}, {"--resume", "auto"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(steps_of(curves()["train/loss"]), testing::ElementsAre(2, 4));
  EXPECT_EQ(curves(), curves_of_records());
}

// A record that a kill left torn hides nothing that comes behind it.
TEST_F(TrainTensorboard, ReadsOnBehindATornRecord) {
  ASSERT_EQ(train({"run.tensorboard=true", "run.steps=6"}).status, 0);
  const fs::path file = event_directory() / event_files().front();
  fs::resize_file(file, fs::file_size(file) - 9);
  const fs::path checkpoint = run_dir() / "checkpoints/step_00000002";
  ASSERT_EQ(
      train({"run.tensorboard=true", "run.steps=6"}, {"--resume", checkpoint}).status, 0);
  EXPECT_EQ(curves(), curves_of_records());
}

// Of documents of one letter, whose ends are not looked at, every second step has no
// loss.
TEST_F(TrainTensorboard, ShowsLossesThatAreNotKnown) {
  std::string letters;
  for (int i = 0; i < 40; ++i) letters += "a\n";
  spill(scratch_ / "letters.txt", letters);
  const RunResult made =
      trireme({"tokenize", "--train-bpe", "257", "--documents", "line", "--out",
               scratch_ / "letters.h5", scratch_ / "letters.txt"});
  ASSERT_EQ(made.status, 0) << made.err;
  const RunResult trained =
      train({"run.tensorboard=true", "run.steps=12", "model.sequence=1", "batch.micro=1",
             "batch.global=1", "data.mask_eod_loss=true",
             "data.train=" + (scratch_ / "letters.h5").string()});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const json curves = this->curves();
  EXPECT_EQ(curves, curves_of_records());
  const json& losses = curves["train/loss"];
  const auto unknown =
      std::ranges::count_if(losses, [](const json& point) { return point[1] == "nan"; });
  EXPECT_GT(unknown, 0);
  EXPECT_LT(unknown, 12);
}

TEST_F(TrainTensorboard, WritesNothingUnasked) {
  ASSERT_EQ(train().status, 0);
  EXPECT_FALSE(fs::exists(event_directory()));
}

TEST_F(TrainTensorboard, SaysWhatIsInItsPlace) {
  fs::create_directories(run_dir());
  spill(event_directory(), "notes");
  const RunResult result = train({"run.tensorboard=true"});
  expect_error(result, 1, {event_directory().string()});
}

}  // namespace
}  // namespace trireme::test

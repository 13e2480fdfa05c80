// efficiency.json of runs: the identity, parts that add up, over several starts and a
// kill, and delays on purpose that are the first loss, with the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainEfficiency : public Workplace {
 protected:
  json efficiency() const { return json::parse(slurp(run_dir() / "efficiency.json")); }
  static double factor(const json& of, const std::string& name) {
    for (const json& factor : of["identity"]["factors"]) {
      if (factor["name"] == name) return factor["value"];
    }
    ADD_FAILURE() << "no factor " << name;
    return 0.0;
  }
  static double lost(const json& of, const std::string& name, const std::string& part) {
    for (const json& factor : of["identity"]["factors"]) {
      if (factor["name"] == name) return factor["lost"][part];
    }
    ADD_FAILURE() << "no factor " << name;
    return 0.0;
  }
  static double ideal_network(const json& of) {
    return of["identity"]["quantities_flops"]["ideal_network"];
  }
  // The share of the wall time that has a part: of one whole start all of it.
  double counted_ = 0.0;
  void expect_whole(const json& of) {
    const double goodput = of["identity"]["goodput"];
    EXPECT_GT(goodput, 0.0);
    EXPECT_NEAR(of["identity"]["product"].get<double>() / goodput, 1.0, 1e-9);
    // Parts and what lies outside of the loop make the wall time of all starts.
    double seconds = of["device_seconds"]["set_up"];
    for (const auto& [name, part] : of["device_seconds"]["parts"].items()) {
      seconds += part.get<double>();
    }
    for (const auto& [name, axis] : of["device_seconds"]["messages"].items()) {
      seconds += axis["device_seconds"].get<double>();
    }
    EXPECT_LE(seconds, 1.01 * of["device_seconds"]["all"].get<double>());
    counted_ = seconds / of["device_seconds"]["all"].get<double>();
    // Nothing is lost twice, but for what clocks and a busy machine make of it.
    const double peak = 1e12 * of["machine"]["peak_tflops"].get<double>();
    const double capacity = of["identity"]["quantities_flops"]["capacity"];
    if (of["run"]["starts"] == 1) {
      EXPECT_NEAR(capacity / (peak * of["device_seconds"]["all"].get<double>()), 1.0,
                  1e-9);
    }
    for (const json& part : of["identity"]["factors"][0]["lost"]) {
      EXPECT_GE(part.get<double>(), -0.02) << of["identity"]["factors"][0];
    }
    double share = 1.0;
    for (const json& loss : of["losses"]) {
      EXPECT_LE(loss["share"].get<double>(), share + 1e-12) << loss;
      share = loss["share"];
      EXPECT_FALSE(loss["advice"].get<std::string>().empty());
    }
    std::int64_t binned = 0;
    for (const json& bin : of["step_histogram"]) binned += bin["steps"].get<int>();
    EXPECT_EQ(binned, of["steps"].get<double>());
  }
};

TEST_F(TrainEfficiency, OfOneRankAddsUp) {
  const RunResult result = train({"run.steps=20"}, {});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("Efficiency of the run: 20 of 20 steps that stand, 1 start"));
  const json efficiency = this->efficiency();
  expect_whole(efficiency);
  EXPECT_EQ(efficiency["schema_version"], 1);
  EXPECT_EQ(efficiency["complete"], true);
  EXPECT_EQ(efficiency["steps"], 20);
  EXPECT_EQ(efficiency["tokens"], 20 * 4 * 16);
  EXPECT_NEAR(factor(efficiency, "load_balance"), 1.0, 1e-9);
  EXPECT_GE(efficiency["kernels"]["steps_profiled"].get<int>(), 4);
  // The loop is where the time of the process went, but for set-up and the end.
  const json report = json::parse(slurp(run_dir() / "report.json"));
  double parts = 0.0;
  for (const auto& [name, part] : efficiency["device_seconds"]["parts"].items()) {
    parts += part.get<double>();
  }
  for (const auto& [name, axis] : efficiency["device_seconds"]["messages"].items()) {
    parts += axis["device_seconds"].get<double>();
  }
  EXPECT_NEAR(parts / report["this_start"]["loop_seconds"].get<double>(), 1.0, 0.2);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

// The parts are the wall time, to a hundredth: the run is so long that what no part has,
// milliseconds between its phases, is less.
TEST_F(TrainEfficiency, PartsMakeTheWallTime) {
  const RunResult result =
      train({"run.steps=8"}, {"--fault", "slow:phase=step,times=0,seconds=0.5"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json efficiency = this->efficiency();
  expect_whole(efficiency);
  EXPECT_GT(efficiency["device_seconds"]["all"].get<double>(), 4.0);
  EXPECT_NEAR(counted_, 1.0, 0.01);
}

// Against another run of the same work it is said how computation scales; one of other
// work is refused before anything is written.
TEST_F(TrainEfficiency, IsComparedWithAReference) {
  ASSERT_EQ(train({"run.steps=8"}, {}).status, 0);
  const json one = efficiency();
  EXPECT_TRUE(one["pop"]["reference"].is_null());
  const std::string reference = "run.reference=" + run_dir().string();
  const auto at = [this](const char* name) {
    return "run.dir=" + (scratch_ / name).string();
  };
  const RunResult compared = train({"run.steps=8", at("two"), reference}, {});
  ASSERT_EQ(compared.status, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("global (POP)"));
  const json two = json::parse(slurp(scratch_ / "two" / "efficiency.json"));
  expect_whole(two);
  const auto kernels = [](const json& of) {
    const json& parts = of["device_seconds"]["parts"];
    return parts["passes"].get<double>() + parts["optimizer"].get<double>();
  };
  EXPECT_NEAR(two["pop"]["computation_scaling"].get<double>(),
              kernels(one) / kernels(two), 1e-9);
  EXPECT_NEAR(two["pop"]["global_efficiency"].get<double>(),
              two["pop"]["computation_scaling"].get<double>() *
                  two["pop"]["parallel_efficiency"].get<double>(),
              1e-12);
  const RunResult other =
      train({"run.steps=8", "model.layers=1", at("three"), reference}, {});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("another model"));
  EXPECT_FALSE(fs::exists(scratch_ / "three"));
}

// A start that was stopped, one that was killed, and one that ends the run: one report.
TEST_F(TrainEfficiency, IsOfAllStarts) {
  ASSERT_EQ(train({"run.steps=24", "checkpoint.every=4", "run.stop_after=8"}, {}).status,
            0);
  EXPECT_EQ(efficiency()["steps"], 8);
  const RunResult killed =
      train({"run.steps=24", "checkpoint.every=4"},
            {"--resume", "auto", "--fault",
             "slow:phase=step,step=17,seconds=0.5;kill:phase=step,step=20"});
  EXPECT_NE(killed.status, 0);
  const json partial = efficiency();
  EXPECT_EQ(partial["complete"], false);
  EXPECT_GE(partial["steps"], 12);  // of the newest checkpoint
  EXPECT_LE(partial["steps"], 16);
  ASSERT_EQ(train({"run.steps=24", "checkpoint.every=4"}, {"--resume", "auto"}).status,
            0);
  const json whole = efficiency();
  expect_whole(whole);
  EXPECT_EQ(whole["complete"], true);
  EXPECT_EQ(whole["run"]["starts"], 3);
  EXPECT_EQ(whole["steps"], 24);
  EXPECT_EQ(whole["samples"], 24 * 4);
}

// What a start did that was killed before its first checkpoint is lost, and not
// forgotten; until a later one has written its own, the file says that it is not whole.
TEST_F(TrainEfficiency, AStartWithoutACheckpointIsLost) {
  const std::string kill = "slow:phase=step,step=9,seconds=1;kill:phase=step,step=10";
  ASSERT_NE(train({"run.steps=12", "checkpoint.every=100"}, {"--fault", kill}).status, 0);
  const json first = efficiency();
  EXPECT_EQ(first["complete"], false);
  EXPECT_EQ(first["steps"], 0);
  ASSERT_EQ(train({"run.steps=12", "checkpoint.every=100"}, {"--resume", "auto"}).status,
            0);
  const json whole = efficiency();
  EXPECT_EQ(whole["run"]["starts"], 2);
  EXPECT_EQ(whole["steps"], 12);
  EXPECT_GT(whole["device_seconds"]["all"].get<double>(), 1.0);
  EXPECT_GT(whole["identity"]["factors"][0]["lost"]["lost"].get<double>(), 0.3);
  // One that went on from a checkpoint and was killed before the next one.
  ASSERT_NE(train({"run.steps=24", "checkpoint.every=100"},
                  {"--resume", "auto", "--fault", "kill:phase=step,step=14"})
                .status,
            0);
  const json killed = efficiency();
  EXPECT_EQ(killed["complete"], false);
  EXPECT_EQ(killed["run"]["start"], 3);
  EXPECT_EQ(killed["steps"], 12);
}

// A run from another's checkpoint has an account of its own.
TEST_F(TrainEfficiency, OfABranchBeginsAnew) {
  ASSERT_EQ(train({"run.steps=8"}, {}).status, 0);
  const fs::path checkpoint = fs::canonical(newest());
  const fs::path branch = scratch_ / "branch";
  const RunResult result =
      train({"run.steps=12", "run.dir=" + branch.string()}, {"--resume", checkpoint});
  ASSERT_EQ(result.status, 0) << result.err;
  const json of = json::parse(slurp(branch / "efficiency.json"));
  expect_whole(of);
  EXPECT_EQ(of["steps"], 4);
  EXPECT_EQ(of["run"]["starts"], 1);
}

class TrainEfficiencyOfTwo : public TrainEfficiency {
 protected:
  // Of a run of two ranks with such faults and overrides.
  json efficiency_of(const std::string& faults,
                     const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all = {"run.steps=24", "run.log_every=100",
                                    "checkpoint.every=100"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    std::vector<std::string> options;
    if (!faults.empty()) options = {"--fault", faults};
    result_ = trireme_on_ranks(2, train_arguments(all, options));
    EXPECT_EQ(result_.status, 0) << result_.err;
    const json efficiency = this->efficiency();
    expect_whole(efficiency);
    return efficiency;
  }
  static void expect_first(const json& efficiency, const std::string& name, int rank,
                           int stage) {
    // Of a run of seconds its beginning is more than what is planted there.
    const auto& losses = efficiency["losses"];
    const auto found = std::ranges::find_if(losses, [](const json& loss) {
      return loss["name"] != "set_up" && loss["name"] != "warm_up";
    });
    ASSERT_NE(found, losses.end());
    const json& first = *found;
    EXPECT_EQ(first["name"], name) << efficiency["losses"];
    EXPECT_EQ(first["rank"], rank) << efficiency["losses"];
    EXPECT_EQ(first["stage"], stage);
  }

  RunResult result_;
};

TEST_F(TrainEfficiencyOfTwo, ASlowRankIsTheFirstLoss) {
  const json efficiency = efficiency_of(
      "slow:phase=step,rank=1,times=0,seconds=0.08;"
      "slow:phase=step,rank=0,step=20,seconds=0.8");
  expect_first(efficiency, "host", 1, 0);
  EXPECT_LT(factor(efficiency, "load_balance"), 0.9);
  EXPECT_THAT(result_.out, HasSubstr("(rank 1, stage 0)"));
  EXPECT_THAT(result_.out, ContainsRegex("step 20 took [^:]*: rank 0 was"));
}

// Both ranks have as much to do, most of which does not depend on the machine.
TEST_F(TrainEfficiencyOfTwo, ABalancedRunHasBalance) {
  const json efficiency = efficiency_of("slow:phase=step,times=0,seconds=0.2");
  EXPECT_GE(factor(efficiency, "load_balance"), 0.98);
  EXPECT_NEAR(counted_, 1.0, 0.01);
}

// Waits are split where messages were, and links are measured on request.
TEST_F(TrainEfficiencyOfTwo, MessagesAreSetAgainstTheProbe) {
  for (const char* axis : {"gradient", "tensor", "pipeline"}) {
    SCOPED_TRACE(axis);
    fs::remove_all(run_dir());
    const std::string name = axis == std::string("gradient") ? "data" : axis;
    const json efficiency =
        efficiency_of("", {"run.probe=true", "parallel." + name + "=2"});
    EXPECT_GT(efficiency["machine"]["memory_gigabytes_per_second"].get<double>(), 0.0);
    const json& message = efficiency["device_seconds"]["messages"][axis];
    EXPECT_GT(message["sampled_bytes"].get<double>(), 0.0);
    EXPECT_GT(message["sampled_transfer_seconds"].get<double>(), 0.0);
    EXPECT_GE(message["sampled_skew_seconds"].get<double>(), 0.0);
    EXPECT_GT(message["bytes"].get<double>(), message["sampled_bytes"].get<double>());
    bool is_there = false, has_tied = false;
    for (const json& link : efficiency["machine"]["links"]) {
      is_there = is_there || link["axis"] == axis;
      has_tied = has_tied || link["axis"] == "tied";
      EXPECT_EQ(link["ranks"], 2);
      EXPECT_GT(link["payload_bytes_per_second"].get<double>(), 1e6);
      EXPECT_GT(link["latency_seconds"].get<double>(), 0.0);
    }
    EXPECT_TRUE(is_there);
    const bool is_pipeline = axis == std::string("pipeline");
    EXPECT_EQ(has_tied, is_pipeline);
    EXPECT_EQ(efficiency["run"]["tied_stages"],
              is_pipeline ? json::array({0, 1}) : json::array());
    EXPECT_FALSE(efficiency["kernels"]["classes"][0]["seconds_bound"].is_null());
    double bytes = 0.0;
    for (const json& site : efficiency["this_start"]["messages"]) {
      EXPECT_FALSE(site["site"].get<std::string>().empty());
      if (site["axis"] == axis) bytes += site["bytes"].get<double>();
    }
    EXPECT_GE(bytes, message["bytes"].get<double>());  // beside steps, too
    EXPECT_EQ(efficiency["run"]["grid"][name], 2);
  }
}

TEST_F(TrainEfficiencyOfTwo, AStarvedLoaderIsTheFirstLoss) {
  expect_first(efficiency_of("slow:phase=input,rank=1,times=0,seconds=0.05"), "input", 1,
               0);
}

TEST_F(TrainEfficiencyOfTwo, ASlowLinkIsTheFirstLoss) {
  const json efficiency =
      efficiency_of("slow:phase=message.gradient,rank=0,times=0,seconds=0.03");
  expect_first(efficiency, "gradient", 0, 0);
  EXPECT_LT(factor(efficiency, "transfer"), 0.8);
}

TEST_F(TrainEfficiencyOfTwo, ASlowDiskIsTheFirstLoss) {
  expect_first(efficiency_of("slow:phase=ckpt.flush,rank=1,times=0,seconds=1.2",
                             {"checkpoint.every=6"}),
               "checkpoint", 1, 0);
}

// The first start's bubble is in the account of both: the second start is so short that
// its own would not be half of that. How long a bubble is depends on how even stages are,
// which a machine that others use decides.
TEST_F(TrainEfficiencyOfTwo, ABubbleIsOfAllStarts) {
  const std::vector<std::string> deck = {"model.layers=4",         "model.hidden=128",
                                         "model.sequence=64",      "parallel.pipeline=2",
                                         "parallel.stages=[2, 2]", "batch.global=4",
                                         "checkpoint.every=0"};
  std::vector<std::string> first = deck;
  first.emplace_back("run.stop_after=20");
  const json one = efficiency_of("", first);
  std::vector<std::string> all = {"run.steps=24", "run.log_every=100"};
  all.insert(all.end(), deck.begin(), deck.end());
  const RunResult rest = trireme_on_ranks(2, train_arguments(all, {"--resume", "auto"}));
  ASSERT_EQ(rest.status, 0) << rest.err;
  const json both = efficiency();
  EXPECT_EQ(both["run"]["starts"], 2);
  EXPECT_EQ(both["steps"], 24);
  const double of_one = lost(one, "serialisation", "bubble");
  // As long as the replay of its passes says, less the update, which has no bubble.
  const double ideal = one["pipeline"]["bubble_share_ideal_network"];
  EXPECT_GT(of_one, 0.0);
  EXPECT_LE(of_one, ideal / (1.0 + ideal) + 1e-9);
  EXPECT_GT(lost(both, "serialisation", "bubble") * ideal_network(both),
            0.5 * of_one * ideal_network(one));
}

// Seven of eight layers are on the first stage.
TEST_F(TrainEfficiencyOfTwo, AnUnevenStageIsTheFirstLoss) {
  const json efficiency = efficiency_of(
      "", {"model.layers=8", "model.hidden=128", "model.sequence=64",
           "parallel.pipeline=2", "parallel.stages=[7, 1]", "batch.global=32"});
  expect_first(efficiency, "passes", 0, 0);
  EXPECT_GT(factor(efficiency, "serialisation"), 0.7);
}

}  // namespace
}  // namespace trireme::test

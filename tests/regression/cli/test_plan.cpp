// `trireme plan`: predictions, the search, its deck, and what it refuses.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "regression/cli/workplace.hpp"

namespace trireme::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

class Plan : public Workplace {
 protected:
  static std::string deck_file() { return source_file("inputs/gpt/ptd-p-18.4b.yaml"); }
  static std::string selene() {
    return source_file("inputs/machines/selene-trireme.yaml");
  }
  static std::string input(const std::string& name) {
    return source_file("inputs/" + name + ".yaml");
  }
  struct Planned {
    std::string name;
    int devices;
    std::vector<std::string> sets = {};
  };
  static std::vector<std::string> with_sets(std::vector<std::string> arguments,
                                            const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
      arguments.insert(arguments.end(), {"--set", set});
    }
    return arguments;
  }
  json plan(const std::string& deck, int devices, const std::vector<std::string>& more) {
    const fs::path file = scratch_ / "plan.json";
    std::vector<std::string> arguments = {"plan",   deck,        "--machine",
                                          selene(), "--devices", std::to_string(devices),
                                          "--json", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = trireme(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    out_ = result.out;
    return json::parse(slurp(file));
  }
  // What is told of a layout is what a dry run of it says: memory, and FLOPs of a step.
  void expect_as_dry_run(const json& told, const std::string& deck, int devices,
                         const std::vector<std::string>& sets = {}) {
    const fs::path file = scratch_ / "dry.json";
    const RunResult result = trireme(with_sets({"train", deck, "--dry-run", "--ranks",
                                                std::to_string(devices), "--json", file},
                                               sets),
                                     {.directory = scratch_.path()});
    ASSERT_EQ(result.status, 0) << result.err;
    const json dry = json::parse(slurp(file));
    double most = 0.0;
    for (const json& stage : dry["memory"]["stages"]) {
      most = std::max(most, stage["total"].get<double>());
    }
    const double total = told["memory"]["total"].get<double>();
    EXPECT_NEAR(most + told["memory"]["libraries"].get<double>(), total, 1e-6 * total);
    const double flops = 1e12 * told["model_tflops"].get<double>() *
                         told["step_seconds"].get<double>() * devices;
    EXPECT_NEAR(flops, dry["flops"]["model"].get<double>(), 1e-9 * flops);
    EXPECT_GT(told["share_of_peak"].get<double>(), 0.1);
    EXPECT_LT(told["share_of_peak"].get<double>(), 0.9);
  }
  void expect_found(const std::string& deck, int devices,
                    const std::vector<std::string>& sets = {}) {
    const fs::path found = scratch_ / "found.yaml";
    const json result = plan(deck, devices, with_sets({"--out", found}, sets));
    EXPECT_THAT(out_, AllOf(HasSubstr("fastest layout"), HasSubstr("days for")));
    const json& best = result["plans"][0];
    EXPECT_EQ(best["layout"]["tensor"].get<int>() *
                  best["layout"]["pipeline"].get<int>() *
                  best["layout"]["data"].get<int>(),
              devices);
    EXPECT_LE(best["memory"]["total"].get<double>(),
              result["device_memory"].get<double>());
    expect_as_dry_run(best, found, devices);
    const json again = plan(found, devices, {"--fixed"});
    EXPECT_NEAR(again["plans"][0]["step_seconds"].get<double>(),
                best["step_seconds"].get<double>(), 1e-9);
  }

  std::string out_;  // of the last plan
};

// The deck that a search writes is one that a dry run takes, and a plan of that deck says
// the same of it.
TEST_F(Plan, WritesADeckThatTakesWhatItSays) {
  expect_found(deck_file(), 256);
}

// Of BERT and T5, whose corpora nobody has here; of one that has its stages measured,
// which none has where the best layout is without.
TEST_F(Plan, WritesDecksOfKinds) {
  for (const auto& [name, devices, sets] :
       {Planned{"bert/110m", 8}, Planned{"bert/3.9b", 16}, Planned{"t5/11b", 8},
        Planned{"t5/small", 2, {"parallel.pipeline=2", "parallel.balance=measured"}}}) {
    SCOPED_TRACE(name);
    expect_found(input(name), devices, sets);
  }
}

// Stages of both stacks, and of the end of one with the beginning of the other; heads
// that read some rows. What a stage takes is what its dry run says.
TEST_F(Plan, OfPipelinesOfKindsTakesWhatADryRunSays) {
  const std::vector<std::string> both = {"parallel.tensor=2", "batch.micro=2"};
  for (const auto& [name, devices, sets] :
       {Planned{"bert/3.9b", 8, {"parallel.pipeline=4"}},
        Planned{"t5/3b", 8, {"parallel.pipeline=4", "parallel.split=2"}},
        Planned{"t5/3b",
                8,
                {"parallel.pipeline=2", "parallel.virtual_pipeline=3",
                 "parallel.schedule=zero_bubble", "memory.recompute=full"}}}) {
    SCOPED_TRACE(testing::PrintToString(sets));
    std::vector<std::string> keys = both;
    keys.insert(keys.end(), sets.begin(), sets.end());
    const json result = plan(input(name), devices, with_sets({"--fixed"}, keys));
    expect_as_dry_run(result["plans"][0], input(name), devices, keys);
  }
}

TEST_F(Plan, SaysWhatOfKindsDoesNotFit) {
  expect_refusal(
      trireme({"plan", input("t5/11b"), "--machine", selene(), "--devices", "1"}),
      {"1 device cannot hold the model", "none fits", "1 x 1 x 1", "too much",
       "most of it: optimizer"});
  expect_refusal(
      trireme({"plan", input("bert/3.9b"), "--machine",
               source_file("inputs/machines/dgx2-v100.yaml"), "--devices", "1"}),
      {"1 device cannot hold the model", "too much"});
  expect_refusal(
      trireme({"plan", input("t5/3b"), "--machine",
               source_file("inputs/machines/dgx2-v100.yaml"), "--devices", "16"}),
      {"has no device.gemm_peak.bf16"});
}

// A run that makes texts on the way has no stages, and so has no layout that is told.
TEST_F(Plan, OfADeckThatSamplesHasNoStages) {
  const json result = plan(source_file("inputs/gpt/gpt2-124m.yaml"), 8,
                           with_sets({}, {"run.sample_every=100"}));
  for (const json& of : result["plans"]) EXPECT_EQ(of["layout"]["pipeline"], 1);
}

TEST_F(Plan, RefusesWhatCannotBe) {
  spill(scratch_ / "bad.yaml", "name: bad\ndevice: {memory: 80}\n");
  expect_refusal(trireme({"plan", deck_file(), "--machine", scratch_ / "bad.yaml",
                          "--devices", "8"}),
                 {"the machine file has", "device.memory: 80", "bytes", "is missing"});
  expect_refusal(trireme({"plan", deck_file(), "--machine", selene(), "--devices", "2"}),
                 {"2 devices cannot hold the model", "too much"});
  expect_refusal(trireme({"plan", deck_file(), "--machine", scratch_ / "none.yaml",
                          "--devices", "8"}),
                 {"none.yaml"});
  expect_refusal(trireme({"plan"}), {"--machine FILE are needed", "--measure"});
  expect_refusal(trireme({"plan", deck_file(), "--machine", selene(), "--fixed",
                          "--devices", "8192", "--set", "batch.micro=1"}),
                 {"has 4,480 devices, 8192 are asked for"});
  for (const char* const tokens : {"nan", "-1", "0", "inf", "1e19"}) {
    expect_refusal(trireme({"plan", deck_file(), "--machine", selene(), "--devices",
                            "256", std::string("--tokens=") + tokens}),
                   {"is no number of tokens"});
  }
  expect_refusal(trireme({"plan", "--measure", "--json", scratch_ / "host.json"}),
                 {"--json requires DECK"});
}

// What is told of another program's machine says so, and a run of this one on the same
// machine is another plan.
TEST_F(Plan, SaysWhoseStepsItPredicts) {
  const auto plan = [&](const std::string& machine) {
    return trireme({"plan", deck_file(), "--machine",
                    source_file("inputs/machines/" + machine), "--fixed", "--devices",
                    "256"});
  };
  EXPECT_THAT(plan("selene.yaml").out, HasSubstr("as with Megatron-LM of 2021 in place"));
  EXPECT_THAT(plan("selene-trireme.yaml").out, testing::Not(HasSubstr("in place of")));
}

// Steps wait for no checkpoint where there is none before the end.
TEST_F(Plan, HasCheckpointsAsOftenAsTheDeckSaves) {
  const fs::path file = scratch_ / "plan.json";
  const auto checkpoint = [&](const std::string& every) -> double {
    const RunResult plan =
        trireme({"plan", deck_file(), "--machine", selene(), "--devices", "256",
                 "--fixed", "--set", "checkpoint.every=" + every, "--set",
                 "checkpoint.async=false", "--json", file});
    EXPECT_EQ(plan.status, 0) << plan.err;
    return json::parse(slurp(file))["plans"][0]["parts"]["checkpoint"];
  };
  EXPECT_EQ(checkpoint("0"), 0.0);
  EXPECT_NEAR(checkpoint("1"), 10.0 * checkpoint("10"), 1e-9);
}

// A run of two ranks, by which its own step and other layouts are predicted.
class PlanFromARun : public Plan {
 protected:
  RunResult plan_from(const fs::path& run, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan", deck(),   "--machine",
                                          host(), "--from", run};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return trireme(arguments);
  }
  static std::string host() { return source_file("inputs/machines/epyc-2-cores.yaml"); }
  // The same processors behind another network.
  fs::path with_network(const std::string& name, const std::string& speed) const {
    const fs::path file = scratch_ / (name + ".yaml");
    spill(file, "base: " + host() + "\nname: " + name +
                    "\nnetwork:\n  levels: [{name: switch, devices: 16, " + speed +
                    "}]\n");
    return file;
  }
  fs::path report() const { return run_dir() / "efficiency.json"; }
  json run_of_two() {
    const RunResult run =
        trireme_on_ranks(2, {"train", deck(), "--set", "run.steps=24", "--set",
                             "run.log_every=100", "--set", "parallel.data=2"});
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(slurp(report()));
  }
};

TEST_F(PlanFromARun, SaysHowWellItReproducesTheRun) {
  const json run = run_of_two();
  const fs::path file = scratch_ / "plan.json";
  const RunResult same = plan_from(run_dir(), {"--devices", "2", "--fixed", "--set",
                                               "parallel.data=2", "--json", file});
  ASSERT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("calibrated by"), HasSubstr("nearer")));
  const json plan = json::parse(slurp(file));
  const json& calibration = plan["calibration"];
  EXPECT_EQ(calibration["from"], report().string());
  // All of a step of this start, the mean of its ranks.
  double step = 0.0;
  for (const auto& [part, seconds] : run["this_start"]["stages"][0]["seconds"].items()) {
    const std::set<std::string> between = {"warm_up", "validation", "checkpoint",
                                           "sample", "other"};
    if (!between.contains(part)) step += seconds.get<double>();
  }
  EXPECT_NEAR(calibration["step_seconds_measured"].get<double>(), step, 1e-9);
  EXPECT_NEAR(calibration["error"].get<double>(),
              calibration["step_seconds_reproduced"].get<double>() /
                      calibration["step_seconds_measured"].get<double>() -
                  1.0,
              1e-9);
  EXPECT_GT(calibration["factors"]["products"].get<double>(), 0.0);
  // The plan of the run's own deck is what was reproduced.
  EXPECT_NEAR(plan["plans"][0]["step_seconds"].get<double>(),
              calibration["step_seconds_reproduced"].get<double>(), 1e-9);
  // Of other layouts, on as many devices and on fewer, and with another network.
  const fs::path other_network = with_network("faster", "bandwidth: 10e9, latency: 1e-6");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--devices", "1"},
        {"--devices", "2"},
        {"--network", other_network, "--devices", "8"}}) {
    const RunResult other = plan_from(report(), more);
    EXPECT_EQ(other.status, 0) << other.err;
    EXPECT_THAT(other.out, HasSubstr("calibrated by"));
  }
}

// The run was in fp32: of other kernels it says nothing, and the plan says that.
TEST_F(PlanFromARun, SaysWhichKernelsItDidNotMeasure) {
  run_of_two();
  const fs::path file = scratch_ / "plan.json";
  const auto planned = [&](const std::string& compute) {
    return plan_from(run_dir(),
                     {"--devices", "2", "--fixed", "--set", "parallel.data=2", "--set",
                      "precision.compute=" + compute, "--json", file});
  };
  EXPECT_THAT(planned("fp32").out, testing::Not(HasSubstr("the run computed in")));
  EXPECT_EQ(json::parse(slurp(file))["calibration"]["has_kernels_of_deck"], true);
  EXPECT_THAT(planned("bf16").out,
              HasSubstr("the run computed in fp32: kernels of bf16"));
  EXPECT_EQ(json::parse(slurp(file))["calibration"]["has_kernels_of_deck"], false);
}

// Another machine's file, or another program's, is none to calibrate by this run.
TEST_F(PlanFromARun, IsOfTheMachineOfItsFile) {
  run_of_two();
  const auto planned = [&](const std::string& machine) {
    return trireme({"plan", deck(), "--machine", machine, "--from", run_dir(),
                    "--devices", "2", "--fixed", "--set", "parallel.data=2"});
  };
  const RunResult doubted = planned(selene());
  EXPECT_EQ(doubted.status, 0) << doubted.err;
  EXPECT_THAT(doubted.out, AllOf(HasSubstr("not to be trusted"),
                                 HasSubstr("as the peak of a device")));
  EXPECT_THAT(doubted.err, HasSubstr("warning: "));
  expect_refusal(planned(source_file("inputs/machines/selene.yaml")),
                 {"Megatron-LM of 2021", "is of a run of Trireme"});
}

// Not over the report that it is made by, which is in the directory that was named.
TEST_F(PlanFromARun, KeepsTheRun) {
  run_of_two();
  const std::string before = slurp(report());
  for (const fs::path& out : {report(), run_dir() / "deck.yaml"}) {
    expect_refusal(plan_from(run_dir(), {"--devices", "2", "--json", out}),
                   {"is also what is read"});
  }
  EXPECT_EQ(slurp(report()), before);
}

// Messages take what the other network's file says, and kernels what the run found.
TEST_F(PlanFromARun, IsOfAnotherNetwork) {
  run_of_two();
  const fs::path file = scratch_ / "plan.json";
  const auto parts = [&](const std::vector<std::string>& more) -> json {
    std::vector<std::string> arguments = {"--devices",       "2",      "--fixed", "--set",
                                          "parallel.data=2", "--json", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult plan = plan_from(run_dir(), arguments);
    EXPECT_EQ(plan.status, 0) << plan.err;
    return json::parse(slurp(file))["plans"][0]["parts"];
  };
  const json own = parts({});
  const json once =
      parts({"--network", with_network("once", "bandwidth: 2e9, latency: 1e-6")});
  const json ten_times =
      parts({"--network", with_network("ten_times", "bandwidth: 0.2e9, latency: 1e-5")});
  EXPECT_NEAR(ten_times["data_messages"].get<double>(),
              10.0 * once["data_messages"].get<double>(),
              1e-6 * ten_times["data_messages"].get<double>());
  for (const json& other : {once, ten_times}) {
    EXPECT_EQ(other["compute"], own["compute"]);
    EXPECT_EQ(other["optimizer"], own["optimizer"]);
  }
  expect_refusal(plan_from(run_dir(), {"--network", scratch_ / "none.yaml"}),
                 {"none.yaml"});
}

TEST_F(PlanFromARun, RefusesWhatIsNoRunOfItsDeck) {
  json run = run_of_two();
  const auto refuse = [&](const json& text, const std::string& said) {
    spill(report(), text.dump());
    expect_refusal(plan_from(run_dir(), {"--devices", "2"}), {said, "efficiency.json"});
  };
  json wrong = run;
  wrong["schema_version"] = 2;
  refuse(wrong, "has schema_version 2; this program reads 1");
  wrong = run;
  wrong["kernels"]["classes"] = json::array();
  refuse(wrong, "has no times of kernels");
  wrong = run;
  wrong["kernels"]["classes"][0]["seconds"] = -1.0;
  refuse(wrong, "no run measures that");
  wrong = run;
  wrong["kernels"]["classes"][0]["name"] = "magic";
  refuse(wrong, "kernels of a class 'magic'");
  wrong = run;
  wrong["run"]["compute"] = "bfloat16";
  refuse(wrong, "computes in float32");
  wrong = run;
  wrong["this_start"].erase("stages");
  refuse(wrong, "stages");
  wrong = run;
  wrong["this_start"]["steps"] = 4;
  refuse(wrong, "is of a start of 4 steps");
  wrong = run;
  wrong["kernels"]["steps_profiled"] = 2;
  refuse(wrong, "has times of kernels of 2 steps");
  refuse(json::array({1, 2}), "is no efficiency.json of a run");
  spill(report(), run.dump());
  fs::remove(run_dir() / "deck.yaml");
  expect_refusal(plan_from(run_dir(), {"--devices", "2"}), {"deck.yaml"});
  fs::remove(report());
  expect_refusal(plan_from(run_dir(), {"--devices", "2"}), {"efficiency.json"});
}

}  // namespace
}  // namespace trireme::test

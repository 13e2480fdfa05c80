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
};

// The deck that a search writes is one that a dry run takes, and a plan of that deck says
// the same of it.
TEST_F(Plan, WritesADeckThatTakesWhatItSays) {
  const fs::path found = scratch_ / "found.yaml", file = scratch_ / "plan.json";
  const RunResult searched =
      trireme({"plan", deck_file(), "--machine", selene(), "--devices", "256", "--out",
               found, "--json", file});
  ASSERT_EQ(searched.status, 0) << searched.err;
  EXPECT_THAT(searched.err, IsEmpty());
  EXPECT_THAT(searched.out, AllOf(HasSubstr("fastest layout"), HasSubstr("days for")));
  const json result = json::parse(slurp(file));
  const json& best = result["plans"][0];
  EXPECT_EQ(best["layout"]["tensor"].get<int>() * best["layout"]["pipeline"].get<int>() *
                best["layout"]["data"].get<int>(),
            256);
  const fs::path dry = scratch_ / "dry.json";
  ASSERT_EQ(
      trireme({"train", found, "--dry-run", "--ranks", "256", "--json", dry}).status, 0);
  double most = 0.0;
  const json planned = json::parse(slurp(dry));
  for (const json& stage : planned["memory"]["stages"]) {
    most = std::max(most, stage["total"].get<double>());
  }
  const double told = best["memory"]["total"].get<double>();
  EXPECT_NEAR(most + best["memory"]["libraries"].get<double>(), told, 1e-6 * told);
  EXPECT_LE(told, result["device_memory"].get<double>());
  const RunResult fixed = trireme({"plan", found, "--machine", selene(), "--devices",
                                   "256", "--fixed", "--json", file});
  ASSERT_EQ(fixed.status, 0) << fixed.err;
  const json again = json::parse(slurp(file));
  EXPECT_NEAR(again["plans"][0]["step_seconds"].get<double>(),
              best["step_seconds"].get<double>(), 1e-9);
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

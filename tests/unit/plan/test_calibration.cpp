// A machine as a run found it: what was slower or faster than the file says is found
// again, and reports that cannot say it are refused.
#include "plan/calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "plan/performance_model.hpp"
#include "report/efficiency_schema.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

config::Deck deck_of_layout(int tensor, int pipeline, int data) {
  config::Deck deck = test::deck_of({.layers = 16,
                                     .hidden = 2048,
                                     .heads = 16,
                                     .sequence = 2048,
                                     .tensor = tensor,
                                     .pipeline = pipeline,
                                     .data = data,
                                     .micro = 1,
                                     .global = 32,
                                     .recompute = "none"});
  const schedule::Split split = step::pipeline_layout(deck).split;
  deck.parallel.stages = {split.begin(), split.end()};
  return deck;
}

Machine machine() {
  return test::machine_named("selene-trireme");
}

// What a run on this machine would report, if the model were right.
RunTimes times_on(const Machine& machine, const config::Deck& deck) {
  PerformanceModel model(machine, deck);
  const StepKernels kernels = model.step_kernels(deck);
  const Prediction prediction = model.predict(deck, Schedule::of_run);
  return {.file = "efficiency.json",
          .devices = deck.parallel.ranks(),
          .compute = "float16",
          .step = prediction.seconds(),
          .products = kernels.passes.products,
          .attention = kernels.passes.attention,
          .rows = kernels.passes.rows,
          .optimizer = kernels.update.kernels(),
          .beside = prediction.parts.other,
          .tensor_messages = kernels.tensor_messages,
          .data_messages = kernels.data_messages};
}

void slow_down(NetworkLevel& level, double factor) {
  level.bandwidth /= factor;
  level.latency *= factor;
}

const Calibration::Factor& factor_of(const Calibration& found, const std::string& part) {
  for (const Calibration::Factor& factor : found.factors) {
    if (factor.part == part) return factor;
  }
  throw std::out_of_range("no factor of " + part);
}

// The real machine has slower products, faster passes over memory and a slower network:
// the run says so, and other layouts follow.
TEST(Calibration, FindsWhatTheRunFound) {
  Machine real = machine();
  real.device.gemm_share.fp16 *= 0.8;
  real.device.attention_share.fp16 *= 1.5;
  real.device.row_share.fp16 *= 1.2;
  real.device.update_share.fp16 *= 0.5;
  const auto predicted = [](const Machine& of, const config::Deck& deck) {
    return PerformanceModel(of, deck).predict(deck, Schedule::of_run).seconds();
  };
  const config::Deck run = deck_of_layout(2, 2, 2);
  const Calibration found = calibrate(machine(), run, times_on(real, run));
  EXPECT_NEAR(found.error(), 0.0, 0.005);
  EXPECT_GT(predicted(real, run) / predicted(machine(), run), 1.1);
  EXPECT_NEAR(found.machine.device.gemm_share.fp16 / real.device.gemm_share.fp16, 1.0,
              0.02);
  EXPECT_NEAR(found.machine.device.update_share.fp16 / real.device.update_share.fp16, 1.0,
              0.02);
  for (const auto& [tensor, pipeline, data] :
       {std::tuple(1, 1, 8), std::tuple(8, 1, 1), std::tuple(1, 4, 2)}) {
    const config::Deck other = deck_of_layout(tensor, pipeline, data);
    EXPECT_NEAR(predicted(found.machine, other) / predicted(real, other), 1.0, 0.02)
        << tensor << " x " << pipeline << " x " << data;
  }
}

TEST(Calibration, MessagesSlowTheirLevelDown) {
  Machine real = machine();
  slow_down(real.network.front(), 3.0);
  const config::Deck run = deck_of_layout(1, 1, 8);
  const Calibration found = calibrate(machine(), run, times_on(real, run));
  EXPECT_NEAR(found.machine.network.front().bandwidth / real.network.front().bandwidth,
              1.0, 0.05);
  EXPECT_EQ(found.machine.network.back().bandwidth, machine().network.back().bandwidth);
  EXPECT_NEAR(found.error(), 0.0, 0.01);
  EXPECT_NEAR(*factor_of(found, "data messages").factor, 3.0, 0.01);
  EXPECT_EQ(factor_of(found, "data messages").level, "NVLink");
}

// Tensor ranks in a node, data ranks on several: each kind of messages has a level of its
// own, and either may be slower or faster than its file says.
TEST(Calibration, EachKindOfMessagesSetsItsLevel) {
  Machine real = machine();
  slow_down(real.network.front(), 0.8);
  slow_down(real.network.back(), 3.0);
  const config::Deck run = deck_of_layout(8, 1, 2);
  const Calibration found = calibrate(machine(), run, times_on(real, run));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(found.machine.network[i].bandwidth / real.network[i].bandwidth, 1.0,
                0.01);
    EXPECT_NEAR(found.machine.network[i].latency / real.network[i].latency, 1.0, 0.01);
  }
  EXPECT_EQ(factor_of(found, "tensor messages").level, "NVLink");
  EXPECT_EQ(factor_of(found, "data messages").level, "InfiniBand");
  EXPECT_TRUE(factor_of(found, "data messages").is_applied);
  EXPECT_NEAR(found.error(), 0.0, 0.005);
  const config::Deck other = deck_of_layout(1, 1, 32);
  const auto seconds = [&](const Machine& of) {
    return PerformanceModel(of, other).predict(other, Schedule::of_run).seconds();
  };
  EXPECT_NEAR(seconds(found.machine) / seconds(real), 1.0, 0.01);
  EXPECT_GT(seconds(real) / seconds(machine()), 1.05);
}

// A level has one speed: where both kinds go over it, that of tensor messages.
TEST(Calibration, ALevelThatIsSharedIsSetOnce) {
  const config::Deck run = deck_of_layout(2, 1, 4);
  RunTimes times = times_on(machine(), run);
  times.tensor_messages *= 2.0;
  times.data_messages *= 5.0;
  const Calibration found = calibrate(machine(), run, times);
  EXPECT_NEAR(
      machine().network.front().bandwidth / found.machine.network.front().bandwidth, 2.0,
      0.01);
  EXPECT_TRUE(factor_of(found, "tensor messages").is_applied);
  EXPECT_FALSE(factor_of(found, "data messages").is_applied);
  EXPECT_NEAR(*factor_of(found, "data messages").factor, 5.0, 0.01);
}

// Messages that are faster than their file says, beyond what the level within a node lets
// through: then both are faster.
TEST(Calibration, AGroupOverTwoLevelsIsAsFastAsBoth) {
  Machine slow = machine();
  slow.network.front().bandwidth = 2.0 * slow.network.back().bandwidth;
  slow.network.back().bandwidth /= 8.0;
  const config::Deck run = deck_of_layout(1, 1, 16);
  const Calibration found = calibrate(slow, run, times_on(machine(), run));
  EXPECT_NEAR(collective_crossing(found.machine, places_of(run).gradient).bandwidth /
                  collective_crossing(machine(), places_of(run).gradient).bandwidth,
              1.0, 0.05);
}

// What the probe found of a message between stages, whatever stages waited.
TEST(Calibration, MessagesBetweenStagesAreAsProbed) {
  Machine real = machine();
  real.network.back().bandwidth /= 2.0;
  real.network.back().latency *= 2.0;
  const config::Deck run = deck_of_layout(8, 2, 1);
  RunTimes times = times_on(real, run);
  const double seconds = message_seconds(real, places_of(run).pipeline, kProbedBytes);
  const Calibration unknown = calibrate(machine(), run, times);
  EXPECT_EQ(unknown.machine.network.back().bandwidth, machine().network.back().bandwidth);
  EXPECT_FALSE(factor_of(unknown, "stage messages").factor);
  times.stage_messages = {.latency = real.network.back().latency,
                          .rate = kProbedBytes / seconds};
  const Calibration found = calibrate(machine(), run, times);
  EXPECT_NEAR(found.machine.network.back().bandwidth, real.network.back().bandwidth, 1.0);
  EXPECT_EQ(found.machine.network.back().latency, real.network.back().latency);
  EXPECT_NEAR(*factor_of(found, "stage messages").factor, 2.0, 1e-9);
  EXPECT_EQ(factor_of(found, "stage messages").level, "InfiniBand");
}

// What messages reached in steps goes before what one reached by itself.
TEST(Calibration, GradientsGoBeforeTheProbe) {
  const config::Deck run = deck_of_layout(8, 2, 2);
  RunTimes times = times_on(machine(), run);
  times.stage_messages = {.latency = 1e-6, .rate = 1e9};
  const Calibration found = calibrate(machine(), run, times);
  EXPECT_EQ(factor_of(found, "data messages").level, "InfiniBand");
  EXPECT_TRUE(factor_of(found, "data messages").is_applied);
  EXPECT_EQ(factor_of(found, "stage messages").level, "InfiniBand");
  EXPECT_FALSE(factor_of(found, "stage messages").is_applied);
  EXPECT_NEAR(found.machine.network.back().bandwidth, machine().network.back().bandwidth,
              1.0);
}

// Another network is as its own file says; what the run found of the devices stays.
TEST(Calibration, AnotherNetworkIsAsItsFileSays) {
  Machine real = machine();
  slow_down(real.network.front(), 3.0);
  real.device.gemm_share.fp16 *= 0.8;
  const config::Deck run = deck_of_layout(1, 1, 8);
  const Calibration found = calibrate(machine(), run, times_on(real, run));
  const Machine other = with_network(found.machine, machine());
  EXPECT_EQ(other.network.front().bandwidth, machine().network.front().bandwidth);
  EXPECT_EQ(other.device.gemm_share.fp16, found.machine.device.gemm_share.fp16);
  Machine ideal = real;
  ideal.network = machine().network;
  const auto seconds = [&](const Machine& of) {
    return PerformanceModel(of, run).predict(run, Schedule::of_run).seconds();
  };
  EXPECT_NEAR(seconds(other) / seconds(ideal), 1.0, 0.01);
  EXPECT_LT(seconds(other), 0.99 * seconds(found.machine));
}

// The levels of a machine are those that a file may have, whatever the run found of one.
const Calibration::BoundLevel& only_bound_level(const Calibration& found) {
  for (std::size_t i = 1; i < found.machine.network.size(); ++i) {
    EXPECT_GE(found.machine.network[i - 1].bandwidth, found.machine.network[i].bandwidth);
  }
  EXPECT_THAT(found.doubts, IsEmpty());
  if (found.bound_levels.size() != 1) throw std::out_of_range("not one bound level");
  return found.bound_levels.front();
}

// A node that is slower than the file's fabric: no way out of it is faster.
TEST(Calibration, NoLevelIsFasterThanWhatIsInside) {
  Machine file = machine();
  file.network.front().bandwidth = 1.2 * file.network.back().bandwidth;
  Machine real = file;
  slow_down(real.network.front(), 5.0);
  const config::Deck run = deck_of_layout(1, 1, 8);
  const Calibration found = calibrate(file, run, times_on(real, run));
  const Calibration::BoundLevel& bound = only_bound_level(found);
  EXPECT_EQ(bound.level, "InfiniBand");
  EXPECT_EQ(bound.neighbour, "NVLink");
  EXPECT_EQ(bound.of_file, file.network.back().bandwidth);
  EXPECT_EQ(bound.bandwidth, found.machine.network.front().bandwidth);
  EXPECT_EQ(found.machine.network.back().bandwidth, bound.bandwidth);
  EXPECT_NEAR(found.machine.network.front().bandwidth / real.network.front().bandwidth,
              1.0, 0.05);
  EXPECT_NEAR(found.error(), 0.0, 0.01);
}

// A fabric that the probe found faster than the file's node: then the node is, too.
TEST(Calibration, NoLevelIsSlowerThanWhatIsOutside) {
  Machine file = machine();
  file.network.front().bandwidth = 1.2 * file.network.back().bandwidth;
  const config::Deck run = deck_of_layout(1, 16, 1);
  RunTimes times = times_on(file, run);
  times.stage_messages = {.latency = 1e-6, .rate = 2.0 * file.network.back().bandwidth};
  const Calibration found = calibrate(file, run, times);
  const Calibration::BoundLevel& bound = only_bound_level(found);
  EXPECT_EQ(bound.level, "NVLink");
  EXPECT_EQ(bound.neighbour, "InfiniBand");
  EXPECT_EQ(found.machine.network.front().bandwidth,
            found.machine.network.back().bandwidth);
}

// Where the run itself says of both that the nearer one is slower, it is a doubt.
TEST(Calibration, DoubtsARunThatIsFasterFarAway) {
  Machine file = machine();
  file.network.front().bandwidth = 1.2 * file.network.back().bandwidth;
  const config::Deck run = deck_of_layout(8, 2, 1);
  RunTimes times = times_on(file, run);
  times.stage_messages = {.latency = 1e-6, .rate = 3.0 * file.network.back().bandwidth};
  const Calibration found = calibrate(file, run, times);
  EXPECT_THAT(found.bound_levels, IsEmpty());
  EXPECT_THAT(found.doubts, Contains(HasSubstr("level 'InfiniBand' of the network")));
}

// A run on another machine than that of the file gives itself away.
TEST(Calibration, DoubtsARunOfAnotherMachine) {
  const config::Deck run = deck_of_layout(1, 1, 8);
  const RunTimes own = times_on(machine(), run);
  EXPECT_THAT(calibrate(machine(), run, own).doubts, IsEmpty());
  RunTimes times = own;
  times.products *= 12.0;
  times.peak = 0.2 * machine().device.gemm_peak.fp16;
  EXPECT_THAT(calibrate(machine(), run, times).doubts,
              AllOf(Contains(HasSubstr("'products' took 12 x the time")),
                    Contains(HasSubstr("as the peak of a device")),
                    Contains(HasSubstr("the run's own step is reproduced +"))));
  times = own;
  times.data_messages /= 20.0;
  EXPECT_THAT(calibrate(machine(), run, times).doubts,
              Contains(HasSubstr("'data messages' took 0.05 x")));
  times = own;
  times.products *= 0.5;
  EXPECT_THAT(calibrate(machine(), run, times).doubts,
              Contains(HasSubstr("of device.gemm_peak")));
  times = own;
  times.step *= 1.4;
  EXPECT_THAT(calibrate(machine(), run, times).doubts,
              ElementsAre(HasSubstr("the run's own step is reproduced -29 % off")));
}

// What one side has and the other has not is said, and not left out.
TEST(Calibration, SaysWhatItCannotTell) {
  const config::Deck run = deck_of_layout(2, 1, 4);
  RunTimes times = times_on(machine(), run);
  times.attention = times.tensor_messages = 0.0;
  const Calibration found = calibrate(machine(), run, times);
  for (const char* const part : {"attention", "tensor messages"}) {
    EXPECT_FALSE(factor_of(found, part).factor) << part;
    EXPECT_EQ(factor_of(found, part).why, "the run has none") << part;
  }
  EXPECT_EQ(factor_of(found, "data messages").level, "NVLink");
  EXPECT_TRUE(factor_of(found, "data messages").is_applied);
}

// The host's time between kernels is there in every micro-batch.
TEST(Calibration, TheHostsTimeStays) {
  const config::Deck run = deck_of_layout(1, 2, 1);
  RunTimes times = times_on(machine(), run);
  times.beside = 0.25 * times.step;
  times.step *= 1.25;
  const Calibration found = calibrate(machine(), run, times);
  EXPECT_GT(found.machine.software.microbatch_seconds, 0.0);
  EXPECT_NEAR(found.error(), 0.0, 0.05);
}

// The second start of a run, of which the first was four times as slow.
json report() {
  const json first = {{"passes", 1.25},  {"optimizer", 0.0625}, {"input", 0.0625},
                      {"host", 0.25},    {"warm_up", 4.0},      {"validation", 2.0},
                      {"gradient", 0.3}, {"world", 0.075}};
  const json last = {{"passes", 1.5},   {"optimizer", 0.0625}, {"input", 0.0625},
                     {"host", 0.125},   {"warm_up", 4.0},      {"validation", 2.0},
                     {"gradient", 0.2}, {"world", 0.05}};
  return {{"schema_version", report::kEfficiencySchema},
          {"run", {{"devices", 4}, {"compute", "float32"}, {"starts", 2}}},
          {"machine", {{"peak_tflops", 0.5}, {"links", json::array()}}},
          {"identity", json::object()},
          {"steps", 40},
          {"rates", {{"step_seconds_mean", 7.0}}},
          {"this_start",
           {{"steps", 10},
            {"stages",
             {{{"stage", 0}, {"ranks", 1}, {"seconds", first}},
              {{"stage", 1}, {"ranks", 3}, {"seconds", last}}}}}},
          {"kernels",
           {{"steps_profiled", 4},
            {"classes",
             {{{"name", "products"}, {"seconds", 1.0}},
              {{"name", "attention"}, {"seconds", 0.25}},
              {{"name", "norms"}, {"seconds", 0.125}},
              {{"name", "copies"}, {"seconds", 0.125}},
              {{"name", "optimizer"}, {"seconds", 0.0625}}}}}},
          {"device_seconds",
           {{"parts", {{"host", 300.0}, {"input", 100.0}}},
            {"messages",
             {{"gradient",
               {{"device_seconds", 800.0},
                {"sampled_skew_seconds", 0.75},
                {"sampled_transfer_seconds", 0.25}}}}}}}};
}

// Of the last start alone, as its kernels are: means over the ranks, of which the second
// stage has three.
TEST(Calibration, ReadsWhatARunReports) {
  const RunTimes times = run_times(report().dump(), "runs/a/efficiency.json");
  EXPECT_EQ(times.devices, 4);
  EXPECT_EQ(times.compute, "float32");
  EXPECT_EQ(times.peak, 0.5e12);
  EXPECT_NEAR(times.step, 2.0, 1e-12);
  EXPECT_EQ(times.products, 1.0);
  EXPECT_EQ(times.attention, 0.25);
  EXPECT_EQ(times.rows, 0.25);
  EXPECT_EQ(times.optimizer, 0.0625);
  EXPECT_NEAR(times.beside, 0.21875, 1e-12);
  EXPECT_NEAR(times.data_messages, 0.25 * 0.225, 1e-12);
  EXPECT_EQ(times.tensor_messages, 0.0);
  EXPECT_FALSE(times.stage_messages);
  json probed = report();
  probed["machine"]["links"] = {
      {{"axis", "gradient"}, {"latency_seconds", 1.0}, {"payload_bytes_per_second", 1.0}},
      {{"axis", "pipeline"},
       {"latency_seconds", 2e-6},
       {"payload_bytes_per_second", 5e9}}};
  const std::optional<ProbedMessages> found =
      run_times(probed.dump(), "e.json").stage_messages;
  ASSERT_TRUE(found);
  EXPECT_EQ(found->latency, 2e-6);
  EXPECT_EQ(found->rate, 5e9);
}

TEST(Calibration, RefusesWhatDoesNotSayIt) {
  const auto refused = [](const json& bad, const char* part) {
    EXPECT_THAT([&] { run_times(bad.dump(), "e.json"); },
                ThrowsMessage<InputError>(HasSubstr(part)));
  };
  refused(json::array(), "'e.json' is no efficiency.json");
  json bad = report();
  bad["schema_version"] = report::kEfficiencySchema + 1;
  refused(bad, "has schema_version");
  bad = report();
  bad["kernels"]["classes"] = json::array();
  refused(bad, "has no times of kernels");
  bad = report();
  bad.erase("device_seconds");
  refused(bad, "has no 'device_seconds'");
  bad = report();
  bad["this_start"]["stages"][1]["seconds"]["host"] = "long";
  refused(bad, "host");
  bad = report();
  bad["this_start"]["stages"] = json::array();
  refused(bad, "has no stages");
  bad = report();
  bad.erase("this_start");
  refused(bad, "has no 'this_start'");
  EXPECT_THAT([] { run_times("{\"a\": ", "e.json"); },
              ThrowsMessage<InputError>(HasSubstr("e.json:1")));
}

// A damaged or a changed report is none to plan by.
TEST(Calibration, RefusesWhatNoRunMeasures) {
  const auto refused = [](const char* pointer, const json& value, const char* part) {
    json bad = report();
    bad["machine"]["links"] = {{{"axis", "pipeline"},
                                {"latency_seconds", 2e-6},
                                {"payload_bytes_per_second", 5e9}}};
    EXPECT_NO_THROW(run_times(bad.dump(), "e.json"));
    bad[json::json_pointer(pointer)] = value;
    EXPECT_THAT([&] { run_times(bad.dump(), "e.json"); },
                ThrowsMessage<InputError>(AllOf(HasSubstr("e.json"), HasSubstr(part))))
        << pointer;
  };
  const char* const none = "no run measures that";
  refused("/kernels/classes/0/seconds", -1.0, none);
  refused("/kernels/classes/1/seconds", 0.0, none);
  refused("/kernels/classes/0/seconds", 1e9, "in which kernels took 1000000000");
  refused("/kernels/classes/2/name", "magic", "class 'magic', and this program knows");
  refused("/this_start/stages/0/seconds/passes", -0.5, none);
  refused("/this_start/stages/1/ranks", 0, none);
  refused("/device_seconds/messages/gradient/sampled_skew_seconds", -0.5, none);
  refused("/device_seconds/messages/gradient/sampled_transfer_seconds", "long",
          "sampled_transfer_seconds");
  refused("/machine/links/0/payload_bytes_per_second", 0.0, none);
  refused("/machine/links/0/latency_seconds", -1e-6, none);
  refused("/machine/peak_tflops", -1.0, none);
}

// Few steps say nothing of a mean, and fewer than three of what their kernels take.
TEST(Calibration, RefusesShortStarts) {
  const auto refused = [](const json& bad, const char* part) {
    EXPECT_THAT([&] { run_times(bad.dump(), "e.json"); },
                ThrowsMessage<InputError>(
                    AllOf(HasSubstr(part), HasSubstr("train for 10 steps or more in"))));
  };
  json bad = report();
  bad["this_start"]["steps"] = 2;
  refused(bad, "'e.json' is of a start of 2 steps, too few to plan by");
  bad = report();
  bad["kernels"]["steps_profiled"] = 2;
  refused(bad, "'e.json' has times of kernels of 2 steps, 3 are needed");
}

TEST(Calibration, RefusesAnotherDeck) {
  const config::Deck deck = deck_of_layout(1, 1, 8);
  EXPECT_THAT(
      [&] { calibrate(machine(), deck, {.file = "e.json", .devices = 4, .step = 1.0}); },
      ThrowsMessage<InputError>(HasSubstr("4 devices, the deck beside it is for 8")));
  EXPECT_THAT(
      [&] {
        calibrate(machine(), deck,
                  {.file = "e.json", .devices = 8, .compute = "float32", .step = 1.0});
      },
      ThrowsMessage<InputError>(HasSubstr("of a run in float32")));
  EXPECT_THAT(
      [&] { calibrate(test::machine_named("selene"), deck, times_on(machine(), deck)); },
      ThrowsMessage<InputError>(HasSubstr("of steps of Megatron-LM of 2021")));
}

}  // namespace
}  // namespace trireme::plan

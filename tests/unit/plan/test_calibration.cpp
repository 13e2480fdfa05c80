// A machine as a run found it: what was slower or faster than the file says is found
// again, and reports that cannot say it are refused.
#include "plan/calibration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/performance_model.hpp"
#include "schedule/balance.hpp"
#include "step/deck_model.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
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
          .update = kernels.update.kernels(),
          .beside = prediction.parts.other,
          .tensor_messages = kernels.passes.tensor_messages,
          .gradient_messages = prediction.parts.data_messages};
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
  real.network.front().bandwidth /= 3.0;
  real.network.front().latency *= 3.0;
  const config::Deck run = deck_of_layout(1, 1, 8);
  const Calibration found = calibrate(machine(), run, times_on(real, run));
  EXPECT_NEAR(found.machine.network.front().bandwidth / real.network.front().bandwidth,
              1.0, 0.05);
  EXPECT_EQ(found.machine.network.back().bandwidth, machine().network.back().bandwidth);
  EXPECT_NEAR(found.error(), 0.0, 0.01);
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

json report() {
  return {{"schema_version", 1},
          {"run", {{"devices", 2}, {"compute", "float32"}}},
          {"identity", json::object()},
          {"steps", 10},
          {"rates", {{"step_seconds_mean", 2.0}}},
          {"kernels",
           {{"classes",
             {{{"name", "products"}, {"seconds", 1.0}},
              {{"name", "attention"}, {"seconds", 0.25}},
              {{"name", "norms"}, {"seconds", 0.125}},
              {{"name", "copies"}, {"seconds", 0.125}},
              {{"name", "optimizer"}, {"seconds", 0.0625}}}}}},
          {"device_seconds",
           {{"parts", {{"host", 2.0}, {"input", 1.0}}},
            {"messages",
             {{"gradient",
               {{"device_seconds", 8.0},
                {"sampled_skew_seconds", 0.75},
                {"sampled_transfer_seconds", 0.25}}}}}}}};
}

TEST(Calibration, ReadsWhatARunReports) {
  const RunTimes times = run_times(report().dump(), "runs/a/efficiency.json");
  EXPECT_EQ(times.devices, 2);
  EXPECT_EQ(times.compute, "float32");
  EXPECT_EQ(times.step, 2.0);
  EXPECT_EQ(times.products, 1.0);
  EXPECT_EQ(times.attention, 0.25);
  EXPECT_EQ(times.rows, 0.25);
  EXPECT_EQ(times.update, 0.0625);
  EXPECT_EQ(times.beside, 0.15);
  EXPECT_EQ(times.gradient_messages, 0.1);
  EXPECT_EQ(times.tensor_messages, 0.0);
}

TEST(Calibration, RefusesWhatDoesNotSayIt) {
  const auto refused = [](const json& bad, const char* part) {
    EXPECT_THAT([&] { run_times(bad.dump(), "e.json"); },
                ThrowsMessage<InputError>(HasSubstr(part)));
  };
  refused(json::array(), "'e.json' is no efficiency.json");
  json bad = report();
  bad["schema_version"] = 2;
  refused(bad, "schema_version 2");
  bad = report();
  bad["kernels"]["classes"] = json::array();
  refused(bad, "has no times of kernels");
  bad = report();
  bad.erase("device_seconds");
  refused(bad, "has no 'device_seconds'");
  bad = report();
  bad["rates"]["step_seconds_mean"] = "fast";
  refused(bad, "step_seconds_mean");
  bad = report();
  bad["steps"] = 0;
  refused(bad, "has no steps");
  EXPECT_THAT([] { run_times("{\"a\": ", "e.json"); },
              ThrowsMessage<InputError>(HasSubstr("e.json:1")));
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
}

}  // namespace
}  // namespace trireme::plan

// What `trireme plan` says, as text, as JSON and as a deck.
#include "plan/plan_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/words.hpp"
#include "step/deck_model.hpp"
#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

config::Deck deck_of_175b() {
  return test::deck_of({.layers = 96,
                        .hidden = 12288,
                        .heads = 96,
                        .tensor = 8,
                        .pipeline = 16,
                        .chunks = 3,
                        .data = 2,
                        .global = 512});
}

PlanReport planned_175b(bool is_fixed) {
  return make_plan(deck_of_175b(), test::machine_named("selene"),
                   {.devices = 256, .is_fixed = is_fixed, .tokens = 300e9});
}

// A search takes a second.
const PlanReport& searched_175b() {
  static const PlanReport report = planned_175b(false);
  return report;
}

TEST(PlanReport, FitsItsScreen) {
  for (const std::string_view line : lines_of(searched_175b().text())) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

// What a run found is said, with how near the model comes to that run.
TEST(PlanReport, SaysByWhichRunItIsCalibrated) {
  PlanReport report = planned_175b(true);
  EXPECT_THAT(report.text(), Not(HasSubstr("calibrated")));
  report.calibration = Calibration{
      .machine = report.machine,
      .file = "runs/some-run-of-last-week/efficiency.json",
      .measured = 20.0,
      .reproduced = 21.0,
      .factors = {
          {.part = "products", .factor = 1.25},
          {.part = "tensor messages", .factor = 2.0, .level = "NVLink"},
          {.part = "data messages",
           .factor = 3.0,
           .level = "NVLink",
           .is_applied = false},
          {.part = "stage messages", .factor = {}, .why = "run.probe: true would tell"}}};
  EXPECT_THAT(report.text(),
              AllOf(HasSubstr("calibrated by runs/some-run-of-last-week/efficiency.json"),
                    HasSubstr("\nits step of 20.00 s is reproduced as 21.00 s, +5.0 %;"),
                    HasSubstr("1.25 x the time"),
                    HasSubstr("2.00 x the time of the machine file, on NVLink"),
                    HasSubstr("3.00 x the time of the machine file; not applied,"),
                    HasSubstr("as in the machine file; run.probe: true would tell")));
  for (const std::string_view line : lines_of(report.text())) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  const nlohmann::json json = nlohmann::json::parse(report.json());
  EXPECT_NEAR(json["calibration"]["error"].get<double>(), 0.05, 1e-12);
  EXPECT_EQ(json["calibration"]["factors"]["products"], 1.25);
  EXPECT_EQ(json["calibration"]["factors"]["data_messages"], 3.0);
  EXPECT_TRUE(json["calibration"]["factors"]["stage_messages"].is_null());
  EXPECT_EQ(json["calibration"]["levels"],
            nlohmann::json({{"tensor_messages", "NVLink"}}));
  EXPECT_TRUE(json["calibration"]["doubts"].empty());
  EXPECT_THAT(report.text(), Not(HasSubstr("not to be trusted")));
}

// Parts of a step have the same names wherever they stand.
TEST(PlanReport, CallsPartsByOneName) {
  std::vector<std::string> names;
  for (const NamedPart& part : step_parts()) names.emplace_back(part.name);
  const config::Deck run = test::deck_of({.layers = 8,
                                          .hidden = 1024,
                                          .heads = 16,
                                          .tensor = 2,
                                          .pipeline = 2,
                                          .data = 2,
                                          .global = 8,
                                          .recompute = "none"});
  const RunTimes times{.file = "efficiency.json",
                       .devices = 8,
                       .compute = "float16",
                       .step = 1.0,
                       .optimizer = 0.1,
                       .tensor_messages = 0.1,
                       .data_messages = 0.1,
                       .stage_messages = ProbedMessages{.latency = 1e-6, .rate = 1e9}};
  int shared = 0;
  for (const Calibration::Factor& factor :
       calibrate(test::machine_named("selene-trireme"), run, times).factors) {
    const bool is_message = factor.part.ends_with("messages");
    if (!is_message && factor.part != "optimizer") continue;
    EXPECT_THAT(names, ::testing::Contains(factor.part));
    ++shared;
  }
  EXPECT_EQ(shared, 4);
}

// What a calibration cannot say, or nobody should believe, is said.
TEST(PlanReport, SaysWhatACalibrationIsWorth) {
  PlanReport report = planned_175b(true);
  report.calibration =
      Calibration{.machine = report.machine,
                  .file = "efficiency.json",
                  .type = DType::float32,
                  .measured = 20.0,
                  .reproduced = 30.0,
                  .factors = {{.part = "products", .factor = 61.0}},
                  .bound_levels = {{.level = "InfiniBand",
                                    .neighbour = "NVLink",
                                    .of_file = 8e9,
                                    .bandwidth = 1.5e9}},
                  .doubts = {"'products' took 61 x the time of the machine file"}};
  EXPECT_THAT(report.text(),
              AllOf(HasSubstr("computed in fp32: kernels of fp16 are as in the machine"),
                    HasSubstr("1.5 GB/s in place of 8 GB/s of the machine file"),
                    HasSubstr("not to be trusted"),
                    HasSubstr("\n  'products' took 61 x the time")));
  for (const std::string_view line : lines_of(report.text())) {
    EXPECT_LE(line.size(), 80u) << line;
  }
  nlohmann::json json = nlohmann::json::parse(report.json())["calibration"];
  EXPECT_EQ(json["compute"], "fp32");
  EXPECT_EQ(json["has_kernels_of_deck"], false);
  EXPECT_EQ(json["levels_bound"][0]["bandwidth_of_file"], 8e9);
  EXPECT_EQ(json["doubts"].size(), 1u);
  report.calibration->type = DType::float16;
  EXPECT_THAT(report.text(), Not(HasSubstr("computed in")));
  json = nlohmann::json::parse(report.json())["calibration"];
  EXPECT_EQ(json["has_kernels_of_deck"], true);
}

// With batches that rise there are more steps, of which the first are shorter: against
// each step by itself.
TEST(PlanReport, CountsTheDaysOfARamp) {
  config::Deck deck = test::deck_of({.layers = 8,
                                     .hidden = 1024,
                                     .heads = 16,
                                     .data = 2,
                                     .global = 64,
                                     .recompute = "none"});
  deck.run.steps = 200;
  const Machine machine = test::machine_named("selene-trireme");
  const PlanOptions options{.devices = 2, .is_fixed = true};
  const PlanReport whole = make_plan(deck, machine, options);
  EXPECT_THAT(whole.text(), Not(HasSubstr("ramp_up")));
  deck.batch.ramp_up = config::RampUp{.start = 8, .increment = 8, .samples = 4000};
  const PlanReport ramped = make_plan(deck, machine, options);
  PerformanceModel model(machine, deck);
  const auto seconds = [&](index_t steps) {
    double sum = 0.0;
    index_t taken = 0;
    for (index_t step = 0; step < steps; ++step) {
      config::Deck of_step = ramped.deck;
      of_step.batch.global = deck.batch.size_at(taken);
      sum += model.predict(of_step, Schedule::by_rule).seconds();
      taken += of_step.batch.global;
    }
    return sum;
  };
  EXPECT_NEAR(86400.0 * ramped.days(), seconds(200), 1e-6 * seconds(200));
  EXPECT_LT(ramped.days(), 0.9 * whole.days());
  EXPECT_THAT(ramped.text(), HasSubstr("with batch.ramp_up"));
  const nlohmann::json json = nlohmann::json::parse(ramped.json());
  EXPECT_EQ(json["tokens"], 2048.0 * config::samples_of(200, deck.batch));
  // As many tokens as without a ramp take longer.
  PlanOptions tokens = options;
  tokens.tokens = 200.0 * 64 * 2048;
  config::Length length(200 * 64);
  length.unit = config::LengthUnit::samples;
  const double longer = seconds(config::steps_of(length, deck.batch, 2048));
  EXPECT_NEAR(86400.0 * make_plan(deck, machine, tokens).days(), longer, 0.01 * longer);
  EXPECT_GT(longer, 86400.0 * whole.days());
}

// A single token takes a step, and with a ramp its first one.
TEST(PlanReport, TakesWholeSteps) {
  config::Deck deck = test::deck_of(
      {.layers = 8, .hidden = 1024, .heads = 16, .global = 64, .recompute = "none"});
  const Machine machine = test::machine_named("selene-trireme");
  const PlanOptions options{.devices = 1, .is_fixed = true, .tokens = 1.0};
  const PlanReport whole = make_plan(deck, machine, options);
  EXPECT_NEAR(86400.0 * whole.days(), whole.best().seconds(), 1e-9);
  EXPECT_THAT(whole.text(), AllOf(HasSubstr(" for 1 token"), Not(HasSubstr(" 0ms"))));
  deck.batch.ramp_up = config::RampUp{.start = 8, .increment = 8, .samples = 4000};
  const PlanReport ramped = make_plan(deck, machine, options);
  EXPECT_NEAR(86400.0 * ramped.days(), ramped.first_step, 1e-9);
}

// Whose network it has is said by the text, the JSON and the deck; and that the factors
// of messages are not of that one.
TEST(PlanReport, SaysWhoseNetworkTheMachineHas) {
  PlanReport report = planned_175b(true);
  EXPECT_TRUE(nlohmann::json::parse(report.json())["network_of"].is_null());
  report.machine = with_network(report.machine, test::machine_named("perlmutter-gpu"));
  EXPECT_THAT(report.text(), HasSubstr("network of Perlmutter GPU"));
  EXPECT_THAT(report.text(), Not(HasSubstr("factors of messages")));
  EXPECT_THAT(report.deck_text(), HasSubstr("with the network of Perlmutter GPU"));
  EXPECT_EQ(nlohmann::json::parse(report.json())["network_of"], "Perlmutter GPU");
  report.calibration = Calibration{.machine = report.machine,
                                   .file = "efficiency.json",
                                   .measured = 20.0,
                                   .reproduced = 21.0,
                                   .factors = {}};
  EXPECT_THAT(report.text(), HasSubstr("factors of messages are"));
  for (const std::string_view line : lines_of(report.text())) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(PlanReport, HasTheBestAndTheOthers) {
  const PlanReport& plan = searched_175b();
  EXPECT_THAT(plan.text(),
              AllOf(HasSubstr("fastest layout"), HasSubstr("days for 300B tokens"),
                    HasSubstr("a step's time"), HasSubstr("memory of a device"),
                    HasSubstr("next, and where their time goes"),
                    HasSubstr("faster, but too large"), HasSubstr("too much")));
  EXPECT_NEAR(plan.days(),
              std::ceil(300e9 / (512.0 * 2048)) * plan.best().seconds() / 86400, 1e-6);
}

TEST(PlanReport, OfAFixedLayoutIsOfThatAlone) {
  const PlanReport plan = planned_175b(true);
  EXPECT_EQ(plan.best().layout, layout_of(deck_of_175b()));
  EXPECT_THAT(plan.text(), AllOf(HasSubstr("layout of the deck"), HasSubstr("8 x 16 x 2"),
                                 Not(HasSubstr("next,")), Not(HasSubstr("too large"))));
}

TEST(PlanReport, SaysThatAFixedLayoutDoesNotFit) {
  config::Deck deck = deck_of_175b();
  Machine machine = test::machine_named("selene");
  machine.device.memory = 8e9;
  const PlanReport plan = make_plan(deck, machine, {.devices = 256, .is_fixed = true});
  EXPECT_THAT(plan.text(), HasSubstr("it does not fit: "));
}

TEST(PlanReport, IsJson) {
  const PlanReport& plan = searched_175b();
  const auto json = nlohmann::json::parse(plan.json());
  EXPECT_EQ(json["devices"], 256);
  ASSERT_EQ(json["plans"].size(), plan.result.plans.size());
  const auto& first = json["plans"][0];
  EXPECT_EQ(first["step_seconds"], plan.best().seconds());
  EXPECT_EQ(first["layout"]["tensor"], plan.best().layout.tensor);
  EXPECT_NEAR(first["model_tflops"].get<double>(),
              plan.best().prediction.model_rate() / 1e12, 1e-9);
  EXPECT_GE(first["hardware_tflops"], first["model_tflops"]);
  EXPECT_EQ(first["memory"]["total"], plan.best().memory.total());
  EXPECT_EQ(first["time_by"], "simulated by rule");
  EXPECT_TRUE(first["loses"].empty());
  EXPECT_FALSE(json["plans"].back()["loses"].empty());
  EXPECT_EQ(json["machine_file"]["device.memory"], 85.8e9);
  EXPECT_EQ(json["machine_file"]["network.levels"][1]["name"], "InfiniBand");
  EXPECT_EQ(json["machine_file"]["software.attention"], "materialised");
  EXPECT_FALSE(json["machine_file"]["device.tiles"].empty());
  EXPECT_FALSE(json.contains("work"));  // resolved_deck says it
  EXPECT_EQ(config::parse_resolved(json["resolved_deck"], 256).model.hidden, 12288);
  for (const auto& large : json["too_large"]) {
    EXPECT_EQ(large["excess"].get<double>(),
              large["memory"]["total"].get<double>() - 85.8e9);
  }
  double sum = 0.0;
  for (const auto& [name, seconds] : first["parts"].items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, plan.best().seconds(), 1e-9);
}

TEST(PlanReport, IsADeck) {
  const PlanReport& plan = searched_175b();
  const config::Deck deck = config::parse_resolved(plan.deck_text(), 256);
  EXPECT_EQ(layout_of(deck), plan.best().layout);
  EXPECT_EQ(deck.model.layers, 96);
}

// Times of small models are not all zeros.
TEST(PlanReport, TellsShortTimesInTheirUnits) {
  const PlanReport plan =
      make_plan(test::deck_of({.layers = 4, .hidden = 256, .heads = 4, .global = 64}),
                test::machine_named("selene-trireme"), {.devices = 16});
  EXPECT_THAT(plan.text(), Not(HasSubstr("+0.0")));
  EXPECT_THAT(plan.text(), AllOf(HasSubstr(" ms"), Not(HasSubstr("in place of"))));
  EXPECT_THAT(searched_175b().text(), HasSubstr("as with Megatron-LM of 2021 in place"));
}

TEST(PlanReport, IsOfDevicesThatThereAre) {
  for (const bool is_fixed : {false, true}) {
    EXPECT_THROW(make_plan(deck_of_175b(), test::machine_named("dgx2-v100"),
                           {.devices = 1024, .is_fixed = is_fixed}),
                 InputError);
  }
}

// Layers that the deck does not deal: of a run of this program as it deals them, in the
// order that it chooses; of another program evenly.
TEST(PlanReport, DealsAsTheProgramDoes) {
  config::Deck deck = deck_of_175b();
  const PlanReport other =
      make_plan(deck, test::machine_named("selene"), {.devices = 256, .is_fixed = true});
  EXPECT_EQ(other.deck.parallel.stages, split_of(deck));
  EXPECT_EQ(other.best().prediction.schedule, Schedule::by_rule);
  const PlanReport own = make_plan(deck, test::machine_named("selene-trireme"),
                                   {.devices = 256, .is_fixed = true});
  const schedule::Split dealt = step::pipeline_layout(deck).split;
  EXPECT_EQ(own.deck.parallel.stages, std::vector<index_t>(dealt.begin(), dealt.end()));
  EXPECT_EQ(own.best().prediction.schedule, Schedule::of_run);
}

TEST(PlanReport, IsOfModelsThatCanBePlanned) {
  config::Deck deck = deck_of_175b();
  deck.model.position = config::Position::rope;
  EXPECT_THROW(make_plan(deck, test::machine_named("selene"), {.devices = 256}),
               InputError);
}

}  // namespace
}  // namespace trireme::plan

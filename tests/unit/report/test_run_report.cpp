// What a start has come to: the lines at its end, and report.json.
#include "report/run_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LossSummary summary(const std::string& name,
                    const std::vector<std::pair<std::int64_t, double>>& losses) {
  LossSummary result({losses.front().first, losses.front().second}, name);
  for (std::size_t i = 1; i < losses.size(); ++i) {
    result.add({losses[i].first, losses[i].second});
  }
  return result;
}

RunReport example_report() {
  return {.end = StartEnd::stopped_early,
          .reason = "signal TERM",
          .start = 3,
          .time = "2025-03-01T12:30:05.250Z",
          .step = 1500,
          .steps = 2000,
          .run_directory = "runs/book",
          .training = summary("", {{10, 6.0}, {1490, 3.5}, {1500, 3.625}}),
          .validations = {summary("held out", {{500, 4.0}, {1000, 3.75}, {1500, 3.875}}),
                          summary("news", {{500, 5.0}, {1500, 4.5}}),
                          summary("once", {{1500, 4.25}})},
          .effective = {.starts = 3, .counted = 60, .running = 80, .waiting = 5}};
}

TEST(RunReport, Text) {
  EXPECT_EQ(example_report().text(),
            "Result: step 1,500 of 2,000, in runs/book\n"
            "  training    mean loss 3.6250 up to step 1,500\n"
            "  held out    loss 3.8750 at step 1,500, best 3.7500 at step 1,000\n"
            "  news        loss 4.5000 at step 1,500, the best\n"
            "  once        loss 4.2500 at step 1,500\n");
  RunReport report = example_report();
  report.corpora = {{"data/book.h5", 2.5}};
  EXPECT_EQ(report.text(), example_report().text());
  report.corpora.push_back({"data/web.h5", 0.125});
  EXPECT_THAT(report.text(),
              HasSubstr("\n  epochs      data/book.h5: 2.5, data/web.h5: 0.125\n"));
  report.training.reset();
  report.validations = {summary("a set with a name that is rather long, as they can be",
                                {{1234567, 4.0}, {9234567, 5.0}})};
  std::istringstream lines(report.text());
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 80) << line;
  }
}

TEST(RunReport, LossesThatAreNotKnown) {
  RunReport report = example_report();
  report.training->add({2000, std::numeric_limits<double>::quiet_NaN()});
  report.validations[1].add({2000, std::numeric_limits<double>::quiet_NaN()});
  EXPECT_THAT(report.text(), AllOf(HasSubstr("mean loss not known up to step 2,000"),
                                   HasSubstr("loss not known at step 2,000, best 4.5000"),
                                   ::testing::Not(HasSubstr("nan"))));
  // Of losses that never were known none is the best.
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  report.validations = {summary("few", {{1000, unknown}, {2000, unknown}})};
  EXPECT_THAT(report.text(), HasSubstr("loss not known at step 2,000\n"));
}

TEST(RunReport, Json) {
  const auto world = comm::make_self_communicator("world");
  RunTimes times;
  times.steps = 400;
  times.step_median = 0.5;
  times.tokens = 1000;
  times.memory = {{"weights", 40e6, 41e6}};
  const SectionTable table(*world, times);
  RunReport report = example_report();
  report.validations[1].add({2000, std::numeric_limits<double>::quiet_NaN()});
  report.corpora = {{"data/book.h5", 2.5}};
  const auto json = nlohmann::json::parse(report.json(table));
  EXPECT_EQ(json.at("schema_version"), 1);
  EXPECT_EQ(json.at("start"), 3);
  EXPECT_EQ(json.at("end"), "stopped_early");
  EXPECT_EQ(json.at("reason"), "signal TERM");
  EXPECT_EQ(json.at("step"), 1500);
  EXPECT_EQ(json.at("steps"), 2000);
  const auto& losses = json.at("losses");
  EXPECT_EQ(losses.at("training").at("first").at("nats_per_token"), 6.0);
  EXPECT_EQ(losses.at("training").at("best").at("step"), 1490);
  const auto& held_out = losses.at("validation").at(0);
  EXPECT_EQ(held_out.at("name"), "held out");
  EXPECT_EQ(held_out.at("last").at("nats_per_token"), 3.875);
  EXPECT_EQ(held_out.at("best").at("nats_per_token"), 3.75);
  const auto& news = losses.at("validation").at(1);
  EXPECT_TRUE(news.at("last").at("nats_per_token").is_null());
  EXPECT_EQ(news.at("best").at("nats_per_token"), 4.5);
  EXPECT_EQ(json.at("effective_time").at("share"), 0.75);
  EXPECT_EQ(json.at("effective_time").at("seconds_between_starts"), 5.0);
  EXPECT_EQ(json.at("corpora").at(0).at("path"), "data/book.h5");
  EXPECT_EQ(json.at("corpora").at(0).at("epochs"), 2.5);
  const auto& tables = json.at("this_start");
  EXPECT_EQ(tables.at("tokens_per_second"), 5.0);
  EXPECT_EQ(tables.at("memory").at("weights").at("bytes_planned"), 40e6);
  EXPECT_TRUE(tables.at("pipeline").is_null());
}

TEST(RunReport, BeforeTheFirstRecord) {
  const auto world = comm::make_self_communicator("world");
  RunReport report{.end = StartEnd::as_asked, .step = 3, .steps = 7};
  EXPECT_EQ(report.text(), "Result: step 3 of 7, in \n");
  const auto json = nlohmann::json::parse(report.json(SectionTable(*world, RunTimes{})));
  EXPECT_EQ(json.at("end"), "stop_after");
  EXPECT_TRUE(json.at("losses").at("training").is_null());
  EXPECT_TRUE(json.at("losses").at("validation").empty());
}

TEST(RunReport, JsonOfAPipeline) {
  const auto world = comm::make_self_communicator("world");
  RunReport report = example_report();
  report.pipeline = step::PipelineReport{.shape = {.stages = 2, .microbatches = 8},
                                         .measured = 1.5,
                                         .work = 1.0,
                                         .simulated = 1.251,
                                         .ideal = 1.0,
                                         .ideal_work = 0.8};
  // Figures that are to be compared have a digit that tells them apart.
  EXPECT_THAT(report.pipeline->text(),
              HasSubstr("bubble: theory 12.5%, simulated 25.1%, measured 50.0% of the "
                        "work\n  on an ideal network kernels alone: 1.0s, bubble 25.0%"));
  auto json = nlohmann::json::parse(report.json(SectionTable(*world, RunTimes{})));
  const auto& pipeline = json.at("this_start").at("pipeline");
  EXPECT_EQ(pipeline.at("stages"), 2);
  EXPECT_EQ(pipeline.at("schedule"), "1f1b");
  EXPECT_EQ(pipeline.at("step_seconds"), 1.5);
  EXPECT_EQ(pipeline.at("bubble_share"), 0.5);
  EXPECT_NEAR(pipeline.at("bubble_share_simulated").get<double>(), 0.251, 1e-12);
  EXPECT_EQ(pipeline.at("step_seconds_ideal_network"), 1.0);
  EXPECT_NEAR(pipeline.at("bubble_share_ideal_network").get<double>(), 0.25, 1e-12);
  EXPECT_EQ(pipeline.at("bubble_share_theory"), 0.125);
}

}  // namespace
}  // namespace trireme::report

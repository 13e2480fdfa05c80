// The block at the end of a run: figures, shares, width, and the same as JSON.
#include "report/section_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.hpp"
#include "comm/self_communicator.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;

RunTimes example_times() {
  RunTimes times;
  times.seconds = {0.125, 70.5, 141.25, 12.0, 0.0, 3.5, 5.0};
  times.loop_seconds = 232.375;
  times.step_seconds = 226.0;
  times.step_median = 0.1875;
  times.steps = 1200;
  times.samples = 38400;
  times.tokens = 9830400;
  times.threads = 2;
  times.model_flops = 4e13;
  times.hardware_flops = 5e13;
  times.peak = {.best = 0.271, .least = 0.026, .probes = 12};
  times.memory = {
      {"weights", 40e6, 40e6}, {"optimizer", 80e6, 79e6}, {"process", 0.0, 1.4e9}};
  times.traffic = {{"tensor",
                    {.calls = 57600,
                     .elements = 30000,
                     .bytes = std::int64_t{3} << 30,
                     .seconds = 2.5,
                     .wait_seconds = 2.0,
                     .under_way_seconds = 12.0,
                     .progress_seconds = 0.5}},
                   {"data", {}}};
  return times;
}

TEST(SectionTable, Text) {
  const auto world = comm::make_self_communicator("world");
  const SectionTable table(*world, example_times());
  EXPECT_EQ(table.text(),
            "Loop time 232.38 s on 1 rank x 2 threads: 1,200 steps, 9.83M tokens\n"
            "Performance: 43.7k tokens/s, 5.33 steps/s, 178 GFLOP/s\n"
            "             in steps of 188ms (median; mean 188ms); 2.7% other work\n"
            "             82% of the measured GEMM peak, 271 GFLOP/s\n"
            "             (best of 12 probes: 26.0 GFLOP/s to 271 GFLOP/s)\n"
            "\n"
            "Section       |   min (s) |   avg (s) |   max (s) |    %total\n"
            "--------------+-----------+-----------+-----------+----------\n"
            "Data          |     0.125 |     0.125 |     0.125 |      0.05\n"
            "Forward       |     70.50 |     70.50 |     70.50 |     30.34\n"
            "Backward      |    141.25 |    141.25 |    141.25 |     60.79\n"
            "Optimizer     |     12.00 |     12.00 |     12.00 |      5.16\n"
            "Communication |     0.000 |     0.000 |     0.000 |      0.00\n"
            "Checkpoint    |     3.500 |     3.500 |     3.500 |      1.51\n"
            "Other         |     5.000 |     5.000 |     5.000 |      2.15\n"
            "\n"
            "Messages      |     calls |   payload | flight(s) | expos.(s) |    hidden\n"
            "--------------+-----------+-----------+-----------+-----------+----------\n"
            "Tensor        |     57.6k |   3.0 GiB |     12.00 |     3.000 |       75%\n"
            "\n"
            "Memory        |   planned |       min |       avg |       max\n"
            "--------------+-----------+-----------+-----------+----------\n"
            "Weights       |  38.1 MiB |  38.1 MiB |  38.1 MiB |  38.1 MiB\n"
            "Optimizer     |  76.3 MiB |  75.3 MiB |  75.3 MiB |  75.3 MiB\n"
            "Process       |         - |   1.3 GiB |   1.3 GiB |   1.3 GiB\n");
}

// Zeros would say that messages cost nothing.
TEST(SectionTable, SecondsThatATransportDoesNotKnowAreNotShown) {
  const auto world = comm::make_self_communicator("world");
  RunTimes times = example_times();
  times.traffic = {{"tensor", {.calls = 57600, .bytes = 4096, .has_seconds = false}}};
  const SectionTable table(*world, times);
  EXPECT_THAT(table.text(),
              testing::HasSubstr(
                  "Tensor        |     57.6k |   4.0 KiB |         - |         - |"));
  EXPECT_EQ(table.json().at("messages").at("tensor").dump(),
            R"({"calls":57600.0,"bytes":4096.0})");
}

TEST(SectionTable, FitsEightyColumnsWhateverTheFigures) {
  const auto world = comm::make_self_communicator("world");
  RunTimes times = example_times();
  for (double& seconds : times.seconds) seconds = 1234567.8;
  times.loop_seconds = 7 * 1234567.8;
  times.steps = 1234567;
  times.tokens = 12345678901234;
  times.step_seconds = 6 * 1234567.8;
  times.step_median = 98765.4;
  times.model_flops = times.hardware_flops = 1e24;
  times.peak = {.best = 987.6, .least = 123.4, .probes = 1234567};
  for (int i = 0; i < 6; ++i) times.memory.push_back({"something", 1e12, 1e12});
  std::istringstream text(SectionTable(*world, times).text());
  for (std::string line; std::getline(text, line);) {
    EXPECT_LE(display_width(line), 80) << line;
  }
}

TEST(SectionTable, Json) {
  const auto world = comm::make_self_communicator("world");
  const auto json = SectionTable(*world, example_times()).json();
  EXPECT_EQ(json.at("steps"), 1200);
  EXPECT_EQ(json.at("samples"), 38400);
  EXPECT_EQ(json.at("loop_seconds"), 232.375);
  EXPECT_EQ(json.at("step_seconds"), 226.0);
  EXPECT_EQ(json.at("step_seconds_median"), 0.1875);
  EXPECT_DOUBLE_EQ(json.at("other_share"), 1.0 - 226.0 / 232.375);
  EXPECT_DOUBLE_EQ(json.at("tokens_per_second"), 9830400 / (1200 * 0.1875));
  EXPECT_DOUBLE_EQ(json.at("model_tflops"), 40.0 / (1200 * 0.1875));
  EXPECT_DOUBLE_EQ(json.at("peak_share"), 50.0 / (1200 * 0.1875) / 0.271);
  EXPECT_EQ(json.at("peak_tflops_least"), 0.026);
  EXPECT_EQ(json.at("peak_probes"), 12);
  EXPECT_EQ(json.at("sections").size(), static_cast<std::size_t>(kSectionCount));
  EXPECT_DOUBLE_EQ(json.at("sections").at("forward").at("share"), 70.5 / 232.375);
  EXPECT_EQ(json.at("sections").at("forward").at("seconds_max"), 70.5);
  EXPECT_EQ(json.at("threads_per_rank"), 2);
  EXPECT_EQ(json.at("memory").at("optimizer").at("bytes_planned"), 80e6);
  EXPECT_EQ(json.at("memory").at("optimizer").at("bytes_max"), 79e6);
  EXPECT_EQ(json.at("messages").size(), 1u);  // nothing went along the data axis
  EXPECT_DOUBLE_EQ(json.at("messages").at("tensor").at("hidden_share"), 0.75);
}

TEST(SectionTable, NothingDoneYet) {
  const auto world = comm::make_self_communicator("world");
  const SectionTable table(*world, RunTimes{});
  EXPECT_EQ(table.tokens_per_second(), 0.0);
  EXPECT_THAT(table.text(), HasSubstr("0 steps, 0 tokens\n"));
  EXPECT_THAT(table.text(), ::testing::Not(HasSubstr("nan")));
  EXPECT_THAT(table.json().dump(), HasSubstr("\"peak_share\":null"));
}

TEST(SectionTable, SharesOfRealTimersSumToOne) {
  const auto world = comm::make_self_communicator("world");
  Timers timers;
  {
    const Region outer(timers, Section::forward);
    const Region inner(timers, Section::communication);
  }
  RunTimes times;
  times.seconds = timers.seconds();
  times.loop_seconds = timers.total_seconds();
  double sum = 0.0;
  const SectionTable table(*world, times);
  for (const auto& row : table.rows()) sum += row.avg;
  EXPECT_NEAR(sum, table.loop_seconds(), 1e-4);
}

}  // namespace
}  // namespace trireme::report

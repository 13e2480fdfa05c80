// The planner's predictions against what papers have published, and the page of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "unit/plan/published_rows.hpp"

namespace trireme::plan {
namespace {

using test::Case;
using test::machine_named;
using test::predict;

constexpr double kTera = 1e12;

enum class Quantity {
  seconds,        // of a step
  hardware_rate,  // TFLOP/s of a device, with what is made again
  model_rate,     // without
  efficiency      // % of the rate of the first row of its table
};

// The error that is allowed: relative, in %; of efficiencies, in points.
struct Row {
  const char* name;
  Case layout;
  double published;
  double allowed;
  Quantity quantity;
  bool is_fitted = false;
};

struct Table {
  const char* title;
  const char* machine;
  const char* fitted;
  std::vector<Row> rows;
};

// Narayanan et al. 2021, table 1; chunks by the scripts of that paper.
Table ptd_p() {
  const auto row = [](const char* name, Case layout, double published,
                      bool is_fitted = false) {
    return Row{name, layout, published, 10.0, Quantity::hardware_rate, is_fitted};
  };
  const auto layout = [](int layers, int hidden, int heads, std::array<int, 4> grid,
                         int micro, int global) {
    return Case{.layers = layers,
                .hidden = hidden,
                .heads = heads,
                .tensor = grid[0],
                .pipeline = grid[1],
                .chunks = grid[2],
                .data = grid[3],
                .micro = micro,
                .global = global};
  };
  return {"PTD-P (Narayanan et al. 2021, arXiv 2104.04473), table 1",
          "selene",
          "`device.gemm_share` (and `software.zero3_share`, below)",
          {row("1.7B", layout(24, 2304, 24, {1, 1, 1, 32}, 16, 512), 137),
           row("3.6B", layout(30, 3072, 32, {2, 1, 1, 32}, 16, 512), 138),
           row("7.5B", layout(36, 4096, 32, {4, 1, 1, 32}, 16, 512), 142),
           row("18.4B", layout(40, 6144, 48, {8, 1, 1, 32}, 8, 1024), 135),
           row("39.1B", layout(48, 8192, 64, {8, 2, 1, 32}, 4, 1536), 138),
           row("76.1B", layout(60, 10240, 80, {8, 4, 3, 32}, 2, 1792), 140),
           row("145.6B", layout(80, 12288, 96, {8, 8, 2, 24}, 2, 2304), 148, true),
           row("310.1B", layout(96, 16384, 128, {8, 16, 2, 15}, 1, 2160), 155),
           row("529.6B", layout(105, 20480, 128, {8, 35, 3, 9}, 1, 2520), 163),
           row("1008B", layout(128, 25600, 160, {8, 64, 1, 6}, 1, 3072), 163)}};
}

// Narayanan et al. 2021, table 2: 174.6B. The figures of ZeRO 3 are for its order beside
// PTD-P, which is tested below, and are not held to a bound.
Table zero_3() {
  Table table{"PTD-P and ZeRO 3 (Narayanan et al. 2021), table 2: 174.6B",
              "selene",
              "`software.zero3_share`",
              {}};
  constexpr double kShown = 100.0;
  const Case model{.layers = 96, .hidden = 12288, .heads = 96, .global = 1536};
  const auto add_zero = [&](const char* name, int devices, int micro, double published,
                            bool is_fitted) {
    Case layout = model;
    layout.data = devices;
    layout.micro = micro;
    layout.zero = 3;
    table.rows.push_back(
        {name, layout, published, kShown, Quantity::hardware_rate, is_fitted});
  };
  const auto add_ptd_p = [&](const char* name, int devices, double published) {
    Case layout = model;
    layout.tensor = 8;
    layout.pipeline = 12;
    layout.data = devices / 96;
    table.rows.push_back({name, layout, published, 10.0, Quantity::hardware_rate});
  };
  add_zero("ZeRO 3, 384 devices", 384, 4, 144, true);
  add_zero("ZeRO 3, 768 devices", 768, 2, 88, false);
  add_zero("ZeRO 3, 1536 devices", 1536, 1, 44, false);
  add_ptd_p("PTD-P, 384 devices", 384, 153);
  add_ptd_p("PTD-P, 768 devices", 768, 149);
  add_ptd_p("PTD-P, 1536 devices", 1536, 141);
  return table;
}

// Smith et al. 2022: 280, 350 and 420 nodes.
Table mt_nlg() {
  Table table{"MT-NLG 530B (Smith et al. 2022, arXiv 2201.11990)",
              "mt-nlg",
              "`software.microbatch_seconds`, `software.step_seconds`",
              {}};
  const auto add = [&](const char* name, int data, double published, bool is_fitted) {
    const Case layout{.layers = 105,
                      .hidden = 20480,
                      .heads = 128,
                      .tensor = 8,
                      .pipeline = 35,
                      .data = data,
                      .global = 1920,
                      .compute = "bf16"};
    table.rows.push_back({name, layout, published, 10.0, Quantity::seconds, is_fitted});
  };
  add("2240 devices", 8, 60.1, true);
  add("2800 devices", 10, 50.2, false);
  add("3360 devices", 12, 44.4, true);
  return table;
}

// Korthikanti et al. 2022, table 5: full recomputation against selective recomputation
// with sequence parallelism. Without data parallelism.
Table selective() {
  Table table{"Recomputation (Korthikanti et al. 2022, arXiv 2205.05198), table 5",
              "selene",
              "none here: as in the table above",
              {}};
  const auto add = [&](const char* name, Case layout, double full, double chosen) {
    layout.tensor = 8;
    layout.global = layout.micro * layout.global;
    table.rows.push_back({name, layout, full, 10.0, Quantity::seconds});
    layout.recompute = "selective";
    layout.sequence_parallel = true;
    table.rows.push_back({name, layout, chosen, 10.0, Quantity::seconds});
  };
  add("22B", {.layers = 48, .hidden = 6144, .heads = 64, .micro = 4, .global = 1}, 1.42,
      1.10);
  add("175B",
      {.layers = 96,
       .hidden = 12288,
       .heads = 96,
       .pipeline = 8,
       .chunks = 3,
       .global = 64},
      18.13, 13.75);
  add("530B",
      {.layers = 105,
       .hidden = 20480,
       .heads = 128,
       .pipeline = 35,
       .chunks = 3,
       .global = 280},
      49.05, 37.83);
  add("1T", {.layers = 128, .hidden = 25600, .heads = 160, .pipeline = 64, .global = 512},
      94.42, 71.49);
  return table;
}

// Shoeybi et al. 2019, section 5.1: 39 TFLOP/s of one device, and what of that is left.
// Its FLOPs are those of the model. Only 8.3B is held to a bound.
Table weak_scaling() {
  Table table{"Weak scaling (Shoeybi et al. 2019, arXiv 1909.08053), section 5.1",
              "dgx2-v100",
              "`device.gemm_share`, `software.data_overlap`",
              {}};
  const auto add = [&](const char* name, Case layout, double published, bool is_fitted,
                       double allowed, Quantity quantity) {
    layout.sequence = 1024;
    layout.micro = 8;
    layout.global = 8 * layout.data;
    table.rows.push_back({name, layout, published, allowed, quantity, is_fitted});
  };
  const Case smallest{.layers = 40, .hidden = 1536, .heads = 16};
  const Case two{.layers = 54, .hidden = 1920, .heads = 20, .tensor = 2};
  const Case four{.layers = 64, .hidden = 2304, .heads = 24, .tensor = 4};
  const Case largest{.layers = 72, .hidden = 3072, .heads = 32, .tensor = 8};
  const auto with_data = [](Case layout) {
    layout.data = 64;
    return layout;
  };
  constexpr double kPoints = 5.0, kShown = 100.0;
  using enum Quantity;
  add("1.2B, one device", smallest, 39, true, kPoints, model_rate);
  add("2.5B, tensor 2", two, 95, false, kShown, efficiency);
  add("4.2B, tensor 4", four, 82, false, kShown, efficiency);
  add("8.3B, tensor 8", largest, 77, false, kPoints, efficiency);
  add("1.2B, data 64", with_data(smallest), 96, false, kShown, efficiency);
  add("2.5B, tensor 2, data 64", with_data(two), 83, false, kShown, efficiency);
  add("4.2B, tensor 4, data 64", with_data(four), 79, true, kShown, efficiency);
  add("8.3B, tensor 8, data 64", with_data(largest), 74, false, kPoints, efficiency);
  return table;
}

std::vector<Table> tables() {
  return {ptd_p(), zero_3(), selective(), mt_nlg(), weak_scaling()};
}

double predicted(const Table& table, const Machine& machine, const Row& row) {
  const Prediction prediction = predict(machine, row.layout);
  switch (row.quantity) {
    case Quantity::seconds:
      return prediction.seconds();
    case Quantity::hardware_rate:
      return prediction.hardware_rate() / kTera;
    case Quantity::model_rate:
      return prediction.model_rate() / kTera;
    case Quantity::efficiency:
      return 100.0 * prediction.model_rate() /
             predict(machine, table.rows.front().layout).model_rate();
  }
  return 0.0;
}

double error_of(const Row& row, double value) {
  return row.quantity == Quantity::efficiency ? value - row.published
                                              : 100.0 * (value / row.published - 1.0);
}

const char* unit_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::seconds:
      return "s";
    case Quantity::hardware_rate:
      return "TFLOP/s, hardware";
    case Quantity::model_rate:
      return "TFLOP/s, model";
    case Quantity::efficiency:
      return "%";
  }
  return "";
}

std::string layout_text(const Case& c) {
  std::string text = fmt::format("{} x {} x {}", c.tensor, c.pipeline, c.data);
  if (c.chunks > 1) text += fmt::format(", {} chunks", c.chunks);
  return text + fmt::format(", {} of {}, {}", c.micro, c.global, c.recompute);
}

const char* const kTablesIntroduction =
    R"(# The planner against published results

<!-- Written by the test of the planner. After a change of the model or of a machine file:
     TRIREME_UPDATE_DOCS=1 ctest --test-dir build/release -R unit.plan.published -->

What `trireme plan --fixed` predicts beside what papers have published: the layout is the paper's,
the machine one of `inputs/machines/`. [The planner](planner.md) says how a prediction is made.
Rows in bold were used to fit the numbers that are named above each table; all others are
predictions. Layouts are tensor x pipeline x data ranks, the chunks of a stage where there are
several, samples of a micro-batch and of a step, recomputation. Errors are relative, those of
efficiencies in points.
)";

std::string page_of(const Table& table) {
  const Machine machine = machine_named(table.machine);
  std::string page = fmt::format(
      "\n## {}\n\nMachine: `inputs/machines/{}.yaml`. Fitted: {}.\n\n"
      "| Model | Layout | Unit | Published | Predicted | Error |\n"
      "|---|---|---|--:|--:|--:|\n",
      table.title, table.machine, table.fitted);
  double sum = 0.0;
  for (const Row& row : table.rows) {
    const double value = predicted(table, machine, row);
    const double error = error_of(row, value);
    sum += std::abs(error);
    const bool is_points = row.quantity == Quantity::efficiency;
    const char* mark = row.is_fitted ? "**" : "";
    page += fmt::format("| {}{}{} | {} | {} | {:g} | {:.{}f} | {:+.1f} {} |\n", mark,
                        row.name, mark, layout_text(row.layout), unit_of(row.quantity),
                        row.published, value, value < 10.0 ? 2 : 1, error,
                        is_points ? "points" : "%");
  }
  page += fmt::format("\nMean error: {:.1f}.\n",
                      sum / static_cast<double>(table.rows.size()));
  return page;
}

class PublishedTables : public ::testing::TestWithParam<Table> {};

TEST_P(PublishedTables, AreMet) {
  const Table& table = GetParam();
  const Machine machine = machine_named(table.machine);
  for (const Row& row : table.rows) {
    const double value = predicted(table, machine, row);
    EXPECT_LE(std::abs(error_of(row, value)), row.allowed)
        << row.name << ": published " << row.published << ", predicted " << value;
  }
}

INSTANTIATE_TEST_SUITE_P(PublishedRows, PublishedTables, ::testing::ValuesIn(tables()));

TEST(PublishedMean, OfPtdPIsWithinFivePercent) {
  const Table table = ptd_p();
  const Machine machine = machine_named(table.machine);
  double sum = 0.0;
  for (const Row& row : table.rows) {
    sum += std::abs(error_of(row, predicted(table, machine, row)));
  }
  EXPECT_LE(sum / static_cast<double>(table.rows.size()), 5.0);
}

// A fit that is no longer one would make predictions of the others meaningless.
TEST(PublishedFits, AreFits) {
  for (const Table& table : tables()) {
    const Machine machine = machine_named(table.machine);
    EXPECT_LE(std::ranges::count_if(table.rows, &Row::is_fitted), 2) << table.title;
    for (const Row& row : table.rows) {
      if (!row.is_fitted) continue;
      EXPECT_LE(std::abs(error_of(row, predicted(table, machine, row))), 0.5)
          << table.title << ", " << row.name;
    }
  }
}

// Narayanan et al. 2021, figure 12: 175B on 96 devices. With 12 samples the bubble is
// largest, and interleaving gains 10 % or more; with 60 it gains less.
TEST(PublishedOrders, InterleavingGainsAtSmallBatches) {
  const Machine machine = machine_named("selene");
  Case layout{.layers = 96,
              .hidden = 12288,
              .heads = 96,
              .tensor = 8,
              .pipeline = 12,
              .micro = 1};
  const auto gain = [&](int batch) {
    Case plain = layout, interleaved = layout;
    plain.global = interleaved.global = batch;
    interleaved.chunks = 4;
    return predict(machine, plain).seconds() / predict(machine, interleaved).seconds();
  };
  EXPECT_GE(gain(12), 1.10);
  EXPECT_LT(gain(60), gain(12));
}

// Figure 13: 162.2B on 64 devices; eight of them are a node.
TEST(PublishedOrders, TensorDegreeIsBestAtANode) {
  const Machine machine = machine_named("selene");
  for (const int batch : {32, 128}) {
    const auto seconds = [&](int tensor) {
      return predict(machine, {.layers = 32,
                               .hidden = 20480,
                               .heads = 128,
                               .tensor = tensor,
                               .pipeline = 64 / tensor,
                               .global = batch})
          .seconds();
    };
    for (const int tensor : {2, 4, 16, 32}) {
      EXPECT_LT(seconds(8), seconds(tensor)) << "tensor " << tensor << ", " << batch;
    }
  }
}

// Table 2: on 384 devices the two are about as fast; with twice and four times as many,
// each of which has its gathers as before, PTD-P is far ahead.
TEST(PublishedOrders, PtdPIsFasterThanZero3OnMoreDevices) {
  const Machine machine = machine_named("selene");
  const std::vector<Row> rows = zero_3().rows;
  const auto ratio = [&](std::size_t row) {
    return predict(machine, rows[row + 3].layout).hardware_rate() /
           predict(machine, rows[row].layout).hardware_rate();
  };
  EXPECT_GT(ratio(0), 1.0);
  EXPECT_GT(ratio(1), 1.25);
  EXPECT_GT(ratio(2), ratio(1));
}

TEST(PublishedPage, IsWhatIsPredicted) {
  std::string page = kTablesIntroduction;
  for (const Table& table : tables()) page += page_of(table);
  const std::string path = test::source_path("docs/planner_published.md");
  if (std::getenv("TRIREME_UPDATE_DOCS") != nullptr) std::ofstream(path) << page;
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(), page) << path
                                 << " is out of date: TRIREME_UPDATE_DOCS=1 "
                                    "ctest -R unit.plan.published";
}

}  // namespace
}  // namespace trireme::plan

// The planner's predictions against what papers have published, and the page of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/exec.hpp"
#include "kernels/narrow_gemm.hpp"
#include "plan/plan_report.hpp"
#include "schedule/balance.hpp"
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

// The error that is allowed: relative, in %; of efficiencies, in points. What is asked of
// a row, or, where nothing is asked of it, a little more than it has.
struct Row {
  const char* name;
  Case layout;
  double published;
  double allowed;
  Quantity quantity;
  bool is_fitted = false;
  const char* machine = nullptr;  // where it is not the table's
};

struct Table {
  const char* title;
  const char* machine;
  const char* fitted;
  std::vector<Row> rows;
  std::string note = "";  // what the numbers alone do not say

  std::string machine_of(const Row& row) const {
    return row.machine != nullptr ? row.machine : machine;
  }
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
          "`device.gemm_share`",
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
// PTD-P, which is tested below.
Table zero_3() {
  Table table{"PTD-P and ZeRO 3 (Narayanan et al. 2021), table 2: 174.6B",
              "selene",
              "`software.zero3_share` (ZeRO 3, `inputs/machines/selene-deepspeed.yaml`), "
              "`device.gemm_share` as above",
              {},
              "PTD-P's rows are predictions. Those of ZeRO 3 stand here for their "
              "order: one number for the share of the network that it reaches, "
              "fitted to 384 devices, does not hold on more, where the published "
              "step takes as long on 1536 devices as on 768. Neither file's "
              "`zero3_share` is part of a plan for Trireme."};
  const Case model{.layers = 96, .hidden = 12288, .heads = 96, .global = 1536};
  const auto add_zero = [&](const char* name, int devices, int micro, double published,
                            double allowed, bool is_fitted) {
    Case layout = model;
    layout.data = devices;
    layout.micro = micro;
    layout.zero = 3;
    table.rows.push_back({name, layout, published, allowed, Quantity::hardware_rate,
                          is_fitted, "selene-deepspeed"});
  };
  const auto add_ptd_p = [&](const char* name, int devices, double published) {
    Case layout = model;
    layout.tensor = 8;
    layout.pipeline = 12;
    layout.data = devices / 96;
    table.rows.push_back({name, layout, published, 10.0, Quantity::hardware_rate});
  };
  add_zero("ZeRO 3, 384 devices", 384, 4, 144, 1.0, true);
  add_zero("ZeRO 3, 768 devices", 768, 2, 88, 28.0, false);
  add_zero("ZeRO 3, 1536 devices", 1536, 1, 44, 75.0, false);
  add_ptd_p("PTD-P, 384 devices", 384, 153);
  add_ptd_p("PTD-P, 768 devices", 768, 149);
  add_ptd_p("PTD-P, 1536 devices", 1536, 141);
  return table;
}

constexpr Case kMtNlg{.layers = 105,
                      .hidden = 20480,
                      .heads = 128,
                      .tensor = 8,
                      .pipeline = 35,
                      .data = 8,
                      .global = 1920,
                      .compute = "bf16"};

// What the two constants of MT-NLG's table are worth.
std::string without_the_fit() {
  const Prediction with = predict(machine_named("mt-nlg"), kMtNlg),
                   without = predict(machine_named("selene"), kMtNlg);
  return fmt::format(
      "Of the {:.1f} s on 2240 devices {:.1f} s are these two constants: without "
      "them, by `selene.yaml`, the model says {:.1f} s ({:+.1f} %). The paper does "
      "not say what takes so long; that its program's pipeline engine takes 21 ms of "
      "each micro-batch on each stage, and 6 s of each step, is a guess that fits. "
      "Two rows determine the two constants, and the third lies between them: it is "
      "an interpolation. Three constants stand behind this table.",
      with.seconds(), with.parts.other, without.seconds(),
      100.0 * (without.seconds() / 60.1 - 1.0));
}

// Smith et al. 2022: 280, 350 and 420 nodes.
Table mt_nlg() {
  Table table{"MT-NLG 530B (Smith et al. 2022, arXiv 2201.11990)",
              "mt-nlg",
              "`software.microbatch_seconds`, `software.step_seconds`, "
              "`device.gemm_share` as above",
              {},
              without_the_fit()};
  const auto add = [&](const char* name, int data, double published, bool is_fitted) {
    Case layout = kMtNlg;
    layout.data = data;
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
  Table table{
      "Recomputation (Korthikanti et al. 2022, arXiv 2205.05198), table 5",
      "selene",
      "none here; `device.gemm_share` as in the table of PTD-P",
      {},
      "All rows are above what was published, as they have no data parallelism and the "
      "row that `device.gemm_share` is fitted to has: an error of the model, not noise."};
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
// Its FLOPs are those of the model. Of 8.3B with data parallelism the text says 74 % and
// the figure 76 %.
Table weak_scaling() {
  Table table{"Weak scaling (Shoeybi et al. 2019, arXiv 1909.08053), section 5.1",
              "dgx2-v100",
              "`device.gemm_share`, `software.data_overlap`",
              {},
              "Published for 8.3B on 512 devices are 74 % in the text and 76 % in a "
              "figure; the error is against the first. `software.data_overlap` is "
              "fitted to 4.2B; fitted to 2.5B or 1.2B, 8.3B would be further off, as "
              "one share of messages that are hidden does not hold for all four "
              "models."};
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
  constexpr double kPoints = 5.0;
  using enum Quantity;
  add("1.2B, one device", smallest, 39, true, kPoints, model_rate);
  add("2.5B, tensor 2", two, 95, false, kPoints, efficiency);
  add("4.2B, tensor 4", four, 82, false, kPoints, efficiency);
  add("8.3B, tensor 8", largest, 77, false, kPoints, efficiency);
  add("1.2B, data 64", with_data(smallest), 96, false, kPoints, efficiency);
  add("2.5B, tensor 2, data 64", with_data(two), 83, false, 12.0, efficiency);
  add("4.2B, tensor 4, data 64", with_data(four), 79, true, 0.5, efficiency);
  add("8.3B, tensor 8, data 64", with_data(largest), 74, false, kPoints, efficiency);
  return table;
}

std::vector<Table> tables() {
  return {ptd_p(), zero_3(), selective(), mt_nlg(), weak_scaling()};
}

// As `trireme plan --fixed` has it.
Prediction planned(const std::string& machine, const Case& layout) {
  const PlanOptions options{.devices = layout.tensor * layout.pipeline * layout.data,
                            .is_fixed = true};
  return make_plan(test::deck_of(layout), machine_named(machine), options)
      .best()
      .prediction;
}

double in_units(const Row& row, const Prediction& prediction, double first_rate) {
  switch (row.quantity) {
    case Quantity::seconds:
      return prediction.seconds();
    case Quantity::hardware_rate:
      return prediction.hardware_rate() / kTera;
    case Quantity::model_rate:
      return prediction.model_rate() / kTera;
    case Quantity::efficiency:
      return 100.0 * prediction.model_rate() / first_rate;
  }
  return 0.0;
}

// In the rows' units.
std::vector<double> predicted(const Table& table) {
  std::vector<double> values;
  double first_rate = 0.0;
  for (const Row& row : table.rows) {
    const Prediction prediction = planned(table.machine_of(row), row.layout);
    if (values.empty()) first_rate = prediction.model_rate();
    values.push_back(in_units(row, prediction, first_rate));
  }
  return values;
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
the machine one of `inputs/machines/`, with the program of the paper and not Trireme.
[The planner](planner.md) says how a prediction is made.
Rows in bold were used to fit the numbers that are named above each table; all others are
predictions. Layouts are tensor x pipeline x data ranks, the chunks of a stage where there are
several, samples of a micro-batch and of a step, recomputation. Errors are relative, those of
efficiencies in points. Kernels are those of a build for CPUs: one for GPUs counts its own, and
predicts times that are up to 2 % longer.
)";

std::string page_of(const Table& table) {
  std::string page = fmt::format(
      "\n## {}\n\nMachine: `inputs/machines/{}.yaml`. Fitted: {}.\n\n"
      "| Model | Layout | Unit | Published | Predicted | Error |\n"
      "|---|---|---|--:|--:|--:|\n",
      table.title, table.machine, table.fitted);
  const std::vector<double> values = predicted(table);
  double sum = 0.0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Row& row = table.rows[i];
    const double value = values[i], error = error_of(row, value);
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
  if (!table.note.empty()) page += "\n" + table.note + "\n";
  return page;
}

// What becomes of two tables when an assumption of selene.yaml is another and the one
// constant is fitted anew.
struct Assumption {
  const char* name;
  void (*change)(Machine&, double factor);
};

const Assumption kAssumptions[] = {
    {"memory's bandwidth", [](Machine& m, double f) { m.device.bandwidth *= f; }},
    {"`row_share`",
     [](Machine& m, double f) { m.device.row_share = ByType::of_all(0.75 * f); }},
    {"NVLink's bandwidth", [](Machine& m, double f) { m.network[0].bandwidth *= f; }},
    {"InfiniBand's bandwidth", [](Machine& m, double f) { m.network[1].bandwidth *= f; }},
    {"latencies",
     [](Machine& m, double f) {
       for (NetworkLevel& level : m.network) level.latency *= f * f * f * f;
     }},
    {"`wave` and `launch`",
     [](Machine& m, double f) {
       m.device.wave *= f * f * f * f;
       m.device.launch *= f * f * f * f;
     }},
    {"shares of tiles that are not the fastest", [](Machine& m, double f) {
       for (Tile& tile : m.device.tiles) {
         tile.share = std::min(tile.share < 1.0 ? tile.share * f : 1.0, 1.0);
       }
     }}};

// Models of rows that keep what they know of layouts from machine to machine.
class Rows {
 public:
  explicit Rows(const Table& table) : table_(table) {
    for (const Row& row : table.rows) {
      decks_.push_back(test::deck_of(row.layout));
      models_.push_back(std::make_unique<PerformanceModel>(machine_named(table.machine),
                                                           decks_.back()));
    }
  }

  double error(std::size_t row, const Machine& machine) {
    models_[row]->set_machine(machine);
    const Prediction prediction = models_[row]->predict(decks_[row], Schedule::by_rule);
    return error_of(table_.rows[row], in_units(table_.rows[row], prediction, 0.0));
  }

  // Mean and largest.
  std::pair<double, double> errors(const Machine& machine) {
    double sum = 0.0, largest = 0.0;
    for (std::size_t i = 0; i < decks_.size(); ++i) {
      const double here = error(i, machine);
      sum += std::abs(here);
      if (std::abs(here) > std::abs(largest)) largest = here;
    }
    return {sum / static_cast<double>(decks_.size()), largest};
  }

 private:
  Table table_;
  std::vector<config::Deck> decks_;
  std::vector<std::unique_ptr<PerformanceModel>> models_;
};

// By bisection: a larger share is a higher rate.
Machine fitted(Rows& rows, std::size_t row, Machine machine) {
  double low = 0.5, high = 1.0;
  for (int i = 0; i < 20; ++i) {
    const double share = 0.5 * (low + high);
    machine.device.gemm_share = ByType::of_all(share);
    (rows.error(row, machine) < 0.0 ? low : high) = share;
  }
  return machine;
}

std::string sensitivity_page() {
  const Table ptd = ptd_p();
  const auto fit = std::ranges::find(ptd.rows, true, &Row::is_fitted) - ptd.rows.begin();
  Rows first(ptd), second(selective());
  std::string page =
      "\n## What is assumed\n\nConstants of `selene.yaml` that are neither fitted "
      "nor of a data sheet, each a tenth lower and\na tenth higher (latencies, "
      "`wave` and `launch` by a third and by a half), with `device.gemm_share` "
      "fitted anew to the same\nrow: errors in %, mean and largest. The requirement "
      "is 10 for every row; where a table leaves it, it holds by the "
      "assumption.\n\n| Assumption | Factor | gemm_share | PTD-P: mean | largest | "
      "Recomputation: mean | largest |\n|---|--:|--:|--:|--:|--:|--:|\n";
  const auto add = [&](const char* name, const std::string& factor,
                       const Machine& machine) {
    const auto [mean, largest] = first.errors(machine);
    const auto [mean_again, largest_again] = second.errors(machine);
    page += fmt::format("| {} | {} | {:.3f} | {:.1f} | {:+.1f} | {:.1f} | {:+.1f} |\n",
                        name, factor, machine.device.gemm_share.fp16, mean, largest,
                        mean_again, largest_again);
  };
  const Machine machine = machine_named("selene");
  add("as they are", "1", fitted(first, extent(fit), machine));
  for (const Assumption& assumption : kAssumptions) {
    for (const double factor : {0.9, 1.1}) {
      Machine changed = machine;
      assumption.change(changed, factor);
      const bool is_fourth = std::string_view(assumption.name).starts_with("lat") ||
                             std::string_view(assumption.name).starts_with("`wave");
      const double shown = is_fourth ? factor * factor * factor * factor : factor;
      add(assumption.name, fmt::format("{:.2g}", shown),
          fitted(first, extent(fit), changed));
    }
  }
  return page;
}

class PublishedTables : public ::testing::TestWithParam<Table> {};

TEST_P(PublishedTables, AreMet) {
  const Table& table = GetParam();
  const std::vector<double> values = predicted(table);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const Row& row = table.rows[i];
    EXPECT_LE(std::abs(error_of(row, values[i])), row.allowed)
        << row.name << ": published " << row.published << ", predicted " << values[i];
  }
}

INSTANTIATE_TEST_SUITE_P(PublishedRows, PublishedTables, ::testing::ValuesIn(tables()));

TEST(PublishedMean, OfPtdPIsWithinFivePercent) {
  const Table table = ptd_p();
  const std::vector<double> values = predicted(table);
  double sum = 0.0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    sum += std::abs(error_of(table.rows[i], values[i]));
  }
  EXPECT_LE(sum / static_cast<double>(table.rows.size()), 5.0);
}

// Whether this program has a host's kernels: with a GPU's, there or in their place, a
// step has other launches.
bool has_host_kernels() {
  return kernels::product_instructions(Exec::shape_only(), DType::bfloat16) !=
         "tensor cores";
}

// A fit that is no longer one would make predictions of the others meaningless. Fits are
// of a host's kernels: a GPU's have a pass over GeLUs beside, and their sums have other
// parts.
TEST(PublishedFits, AreFits) {
  const double most = has_host_kernels() ? 0.5 : 2.0;
  for (const Table& table : tables()) {
    EXPECT_LE(std::ranges::count_if(table.rows, &Row::is_fitted), 2) << table.title;
    const std::vector<double> values = predicted(table);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Row& row = table.rows[i];
      if (!row.is_fitted) continue;
      EXPECT_LE(std::abs(error_of(row, values[i])), most)
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
  const std::vector<double> rates = predicted(zero_3());
  const auto ratio = [&](std::size_t row) { return rates[row + 3] / rates[row]; };
  EXPECT_GT(ratio(0), 1.0);
  EXPECT_GT(ratio(1), 1.25);
  EXPECT_GT(ratio(2), ratio(1));
}

// The layouts that papers have taken, with full and with selective recomputation, as
// Trireme runs them with `parallel.stages: auto` and with an even division: auto is never
// slower, and takes more memory only where that saves time.
TEST(PublishedLayouts, AreDealtNoWorseThanEvenly) {
  const Machine machine = machine_named("selene-trireme");
  std::set<std::string> seen;
  for (const Table& table : tables()) {
    for (const Row& row : table.rows) {
      Case layout = row.layout;
      if (layout.pipeline == 1) continue;
      layout.zero = layout.data > 1 ? 1 : 0;
      for (const char* recompute : {"full", "selective"}) {
        layout.recompute = recompute;
        const std::string name = fmt::format("{} layers of {}, {}", layout.layers,
                                             layout.hidden, layout_text(layout));
        if (!seen.insert(name).second) continue;
        SCOPED_TRACE(name);
        config::Deck deck = test::deck_of(layout);
        const PlanOptions options{.devices = deck.parallel.ranks(), .is_fixed = true};
        const PlanReport dealt = make_plan(deck, machine, options);
        deck.parallel.stages = split_of(deck);
        const PlanReport even = make_plan(deck, machine, options);
        const double time = dealt.best().seconds() / even.best().seconds();
        const double memory = dealt.best().memory.total() / even.best().memory.total();
        EXPECT_LE(time, 1.0 + 1e-9);
        EXPECT_LE(time * (1.0 + schedule::kTimeForMemory * (memory - 1.0)), 1.0 + 1e-9);
      }
    }
  }
}

TEST(PublishedPage, IsWhatIsPredicted) {
  if (!has_host_kernels()) GTEST_SKIP() << "the page is of a host's kernels";
  std::string page = kTablesIntroduction;
  for (const Table& table : tables()) page += page_of(table);
  page += sensitivity_page();
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

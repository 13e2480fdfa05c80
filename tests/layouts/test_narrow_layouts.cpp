// Models that compute in 16 bits: layouts agree with one rank within the rounding of the
// type, the same layout to the bit with itself, and an overflow in fp16 is seen by all
// ranks in the same step and leaves every weight as it was. All of the covering array is
// in test_narrow_covering.cpp, of the label long.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "layouts/narrow_run.hpp"
#include "layouts/narrow_tolerances.hpp"

namespace trireme::test {
namespace {

// Rows in which gradients meet in every way: over micro-batches, over data ranks with
// each degree of ZeRO, over the parts of a sequence, over the stages that share a table.
std::vector<Layout> gradient_layouts() {
  std::vector<Layout> rows = {
      {.data = 2, .zero = 0, .microbatches = 2},
      {.data = 2, .zero = 1, .microbatches = 2, .small_buckets = 1},
      {.data = 2, .zero = 2, .microbatches = 2},
      {.data = 2, .zero = 3, .microbatches = 2},
      {.tensor = 2, .sequence = 1},
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 2, .microbatches = 2}};
  for (Layout deep :
       {Layout{.microbatches = 2, .pipeline = 2},
        Layout{.tensor = 2, .data = 2, .zero = 1, .microbatches = 2, .pipeline = 2}}) {
    deep.size = kDeep;
    rows.push_back(deep);
  }
  return rows;
}

// Rows of the table that split everything that can be split, a few for each axis.
std::vector<Layout> narrow_layouts() {
  using config::PipelineSchedule;
  std::vector<Layout> rows = {
      {.tensor = 2},
      {.tensor = 4, .sequence = 1},
      {.tensor = 8},
      {.data = 4, .zero = 0, .microbatches = 2},
      {.data = 2, .zero = 1, .microbatches = 3, .small_buckets = 1},
      {.data = 4, .zero = 2},
      {.data = 3, .zero = 3, .microbatches = 2},
      {.tensor = 2, .sequence = 1, .data = 4, .zero = 1, .data_first = 1},
      {.tensor = 2, .data = 2, .zero = 3, .microbatches = 2},
      {.tensor = 3, .sequence = 1, .data = 2, .zero = 2}};
  for (Layout deep :
       {Layout{.data = 2, .zero = 1, .microbatches = 4, .pipeline = 2},
        Layout{.tensor = 2, .sequence = 1, .microbatches = 4, .pipeline = 2, .chunks = 2},
        Layout{.microbatches = 6,
        .pipeline = 4,
        .schedule = PipelineSchedule::zero_bubble,
        .recompute = 100},
        Layout{.tensor = 2,
        .data = 2,
        .zero = 3,
        .microbatches = 2,
        .pipeline = 2,
        .recompute = -1}}) {
    deep.size = kDeep;
    rows.push_back(deep);
  }
  return rows;
}

// To the bit.
void expect_same_report(const optim::StepReport& got, const optim::StepReport& want) {
  for (std::size_t i = 0; i < std::size(got.losses); ++i) {
    EXPECT_EQ(got.losses[i].sum, want.losses[i].sum) << "objective " << i;
  }
  EXPECT_EQ(got.grad_norm, want.grad_norm);
}

void check_type(const Types& type, double scale, const std::vector<Layout>& rows) {
  const bool is_half = type.compute == DType::float16;
  const auto world = layout_world();
  const auto alone = run_alone(*world, rows, type, steps_at(scale, kStepsOfPairs));
  FurthestApart furthest;
  for_each_layout(*world, rows, [&](const auto& ranks, const Layout& layout) {
    const model::Blueprint blueprint = matrix_blueprint(layout.size);
    const NarrowTolerances most = is_half ? narrow_tolerances<fp16>(layout.size)
                                          : narrow_tolerances<bf16>(layout.size);
    const NarrowReports& wanted = alone.at(layout.size);
    NarrowRun run(ranks, layout, type), again(ranks, layout, type);
    for (int step = 0; step < kStepsOfPairs; ++step) {
      SCOPED_TRACE("step " + std::to_string(step + 1));
      const optim::StepReport report = run.step(step, scale);
      furthest.expect_near(blueprint, report, wanted[extent(step)], most);
      if (step >= kStepsAgain) continue;
      SCOPED_TRACE("again");
      expect_same_report(again.step(step, scale), report);
    }
  });
  furthest.print(*world, is_half ? "in fp16" : "in bf16");
}

TEST(NarrowLayouts, HaveOneAnswerInBf16) {
  check_type({DType::bfloat16}, 1.0, narrow_layouts());
}

// Rows of other kinds of model: along each axis one, and with stages.
std::vector<Layout> rows_of_kinds() {
  std::vector<Layout> rows = {
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 2, .microbatches = 2}};
  for (Layout deep : {Layout{.tensor = 2,
                     .sequence = 1,
                     .microbatches = 4,
                     .pipeline = 2,
                     .chunks = 2,
                     .recompute = 100},
                      Layout{.data = 2,
                      .zero = 3,
                      .microbatches = 2,
                      .pipeline = 2,
                      .schedule = config::PipelineSchedule::zero_bubble,
                      .recompute = -1}}) {
    deep.size = kDeep;
    rows.push_back(deep);
  }
  return rows;
}

constexpr std::array kOtherKinds = {Kind::bert, Kind::bert_post, Kind::t5,
                                    Kind::t5_own_head};

// These of a GPT, and rows of each other kind.
std::vector<Layout> with_other_kinds(std::vector<Layout> layouts) {
  for (const Kind kind : kOtherKinds) {
    for (const Layout& row : of_kind(kind, rows_of_kinds())) layouts.push_back(row);
  }
  return layouts;
}

// All kinds at once: the references that one rank trains side by side, and the rows.
TEST(NarrowLayouts, OtherKindsHaveOneAnswer) {
  const std::vector<Layout> rows = with_other_kinds({});
  check_type({DType::bfloat16}, 1.0, rows);
  check_type({DType::float16}, 1024.0, rows);
}

TEST(NarrowLayouts, HaveOneAnswerWithGradientsInBf16) {
  const Types narrow{DType::bfloat16, true};
  // Other kinds have tables that stages share, and biases.
  check_type(narrow, 1.0, with_other_kinds(gradient_layouts()));
  const TakeSteps one = steps_at(1.0, 1);
  EXPECT_NE(run_alone(kWide, narrow, one)[0].grad_norm,
            run_alone(kWide, {DType::bfloat16}, one)[0].grad_norm);
}

TEST(NarrowLayouts, HaveOneAnswerInFp16) {
  check_type({DType::float16}, 1024.0, narrow_layouts());
}

// To the bit, the first step and the next: the first says what weights are, the next what
// moments were, and Adam's own step.
void expect_same_steps(NarrowRun& run, NarrowRun& plain) {
  for (int step = 0; step < 2; ++step) {
    const optim::StepReport got = run.step(step, 1024.0), want = plain.step(step, 1024.0);
    SCOPED_TRACE("step " + std::to_string(step + 1));
    EXPECT_TRUE(got.is_finite());
    expect_same_report(got, want);
  }
}

// Which rank has an overflow is no matter of how many samples there are.
std::vector<Layout> with_few_samples(std::vector<Layout> layouts) {
  for (Layout& layout : layouts) layout.size.samples = kDeep.samples;
  return layouts;
}

// A scale that no gradient bears; then one gradient of one rank, for every rank in turn:
// of the first and the last of each axis, among others. Every rank reports it in the same
// step, and the steps after give what they give without it.
TEST(NarrowLayouts, AnOverflowIsSeenByAllAndChangesNothing) {
  const auto world = layout_world();
  const auto expect_overflow = [](const optim::StepReport& bad) {
    EXPECT_FALSE(bad.is_finite());
    EXPECT_TRUE(bad.has_finite_losses());
  };
  for_each_layout(*world, with_few_samples(with_other_kinds(narrow_layouts())),
                  [&](const auto& ranks, const Layout& layout) {
                    NarrowRun run(ranks, layout, {DType::float16}),
                        plain(ranks, layout, {DType::float16});
                    expect_overflow(run.step(0, 0x1p40));
                    for (int rank = 0; rank < ranks->size(); ++rank) {
                      SCOPED_TRACE("planted on rank " + std::to_string(rank));
                      expect_overflow(run.step(0, 1024.0, ranks->rank() == rank));
                    }
                    expect_same_steps(run, plain);
                  });
}

// Steps by a dynamic scale, whose first value no gradient bears. Each is launched before
// the report of the one before is read: its scale and the number of its update are the
// device's own, and the same as the host takes from the reports.
NarrowReports run_scaled(NarrowRun& run, const MatrixSize& size) {
  constexpr int kScaledSteps = 8;
  optim::LossScale scale({.initial = size.is_bert() ? 0x1p17 : 0x1p25, .window = 2});
  std::int64_t update = 1;
  NarrowReports reports;
  const auto read = [&] {
    const optim::StepReport report = reports.emplace_back(run.read_report());
    EXPECT_EQ(report.loss_scale, scale.scale()) << "step " << reports.size();
    EXPECT_EQ(report.update, update) << "step " << reports.size();
    scale.update(!report.is_finite());
    update += report.is_finite() ? 1 : 0;
  };
  run.start(0, update, scale);
  for (int step = 1; step < kScaledSteps; ++step) {
    run.start(step, update + 1, scale);
    read();
  }
  read();
  return reports;
}

// Every layout leaves out the steps that one rank leaves out, and comes to the same
// scales: down, and where enough steps are made up again.
TEST(NarrowLayouts, ADynamicScaleIsThatOfOneRank) {
  const Types type{DType::float16};
  const auto world = layout_world();
  const std::vector<Layout> layouts = with_other_kinds(rows_of_kinds());
  const auto alone = run_alone(*world, layouts, type, &run_scaled);
  for (const auto& [size, reports] : alone) {
    SCOPED_TRACE(name_of(size.kind));
    EXPECT_FALSE(reports.front().is_finite());
    EXPECT_LT(reports.back().loss_scale, reports.front().loss_scale);
    EXPECT_GT(reports.back().update, 1);
  }
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    NarrowRun run(ranks, layout, type);
    const NarrowReports got = run_scaled(run, layout.size);
    const NarrowReports& want = alone.at(layout.size);
    for (std::size_t step = 0; step < want.size(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step + 1));
      EXPECT_EQ(got[step].is_finite(), want[step].is_finite());
      EXPECT_EQ(got[step].loss_scale, want[step].loss_scale);
      EXPECT_EQ(got[step].update, want[step].update);
    }
  });
}

}  // namespace
}  // namespace trireme::test

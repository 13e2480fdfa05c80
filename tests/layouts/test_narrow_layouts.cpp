// Models that compute in 16 bits: layouts agree with one rank within the rounding of the
// type, the same layout to the bit with itself, and an overflow in fp16 is seen by all
// ranks in the same step and leaves every weight as it was. All of the covering array is
// in test_narrow_covering.cpp, of the label long.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "layouts/narrow_run.hpp"
#include "layouts/narrow_tolerances.hpp"

namespace trireme::test {
namespace {

constexpr int kNarrowSteps = 6;

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

// The loss of a step, and that of each objective where there are several.
std::map<std::string, double> all_losses(const std::vector<model::Objective>& objectives,
                                         const optim::StepReport& report) {
  const model::Losses losses = model::losses_of(objectives, report.losses);
  std::map<std::string, double> all(losses.parts.begin(), losses.parts.end());
  all["all"] = losses.total;
  return all;
}

double apart(double got, double want) {
  return std::abs(got - want) / want;
}

// To the bit.
void expect_same_report(const optim::StepReport& got, const optim::StepReport& want) {
  for (std::size_t i = 0; i < std::size(got.losses); ++i) {
    EXPECT_EQ(got.losses[i].sum, want.losses[i].sum) << "objective " << i;
  }
  EXPECT_EQ(got.grad_norm, want.grad_norm);
}

// How far the furthest layout was: what tolerances are taken from.
struct Furthest {
  double loss = 0.0, pairs = 0.0, norm = 0.0;
};
void print_furthest(comm::Communicator& world, const Furthest& mine, const char* type,
                    Kind kind) {
  const auto most = [&](double of_mine) {
    return std::ranges::max(world.gather(of_mine));
  };
  const double loss = most(mine.loss), pairs = most(mine.pairs), norm = most(mine.norm);
  if (world.rank() != 0) return;
  std::printf("%s in %s: furthest apart: losses %.2g, that of pairs %.2g, norms %.2g\n",
              name_of(kind).c_str(), type, loss, pairs, norm);
}

void check_type(const Types& type, double scale, const std::vector<Layout>& layouts,
                Kind kind = Kind::gpt) {
  const bool is_half = type.compute == DType::float16;
  const NarrowTolerances most =
      is_half ? narrow_tolerances<fp16>(kind) : narrow_tolerances<bf16>(kind);
  const auto world = layout_world();
  MatrixSize of_wide = kWide, of_deep = kDeep;
  of_wide.kind = of_deep.kind = kind;
  const auto objectives = matrix_blueprint(of_wide).objectives;
  const auto wide = run_alone(of_wide, type, kNarrowSteps, scale),
             deep = run_alone(of_deep, type, kNarrowSteps, scale);
  Furthest furthest;
  for_each_layout(*world, of_kind(kind, layouts),
                  [&](const auto& ranks, const Layout& layout) {
                    const auto& alone = layout.size.layers == kDeep.layers ? deep : wide;
                    NarrowRun run(ranks, layout, type), again(ranks, layout, type);
                    for (int step = 0; step < kNarrowSteps; ++step) {
                      const optim::StepReport& want = alone[extent(step)];
                      const optim::StepReport report = run.step(step, scale);
                      const auto losses = all_losses(objectives, report),
                                 wanted = all_losses(objectives, want);
                      for (const auto& [name, loss] : wanted) {
                        const bool is_of_pairs = name == "segment pairs";
                        const double here = apart(losses.at(name), loss);
                        EXPECT_LE(here, is_of_pairs ? most.pairs : most.loss)
                            << "step " << step + 1 << ", loss of " << name;
                        double& far = is_of_pairs ? furthest.pairs : furthest.loss;
                        far = std::max(far, here);
                      }
                      const double of_norm = apart(report.grad_norm, want.grad_norm);
                      EXPECT_LE(of_norm, most.norm) << "step " << step + 1;
                      furthest.norm = std::max(furthest.norm, of_norm);
                      SCOPED_TRACE("again, step " + std::to_string(step + 1));
                      expect_same_report(again.step(step, scale), report);
                    }
                  });
  print_furthest(*world, furthest, is_half ? "fp16" : "bf16", kind);
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

TEST(NarrowLayouts, OtherKindsHaveOneAnswer) {
  for (const Kind kind : {Kind::bert, Kind::bert_post, Kind::t5, Kind::t5_own_head}) {
    SCOPED_TRACE(name_of(kind));
    check_type({DType::bfloat16}, 1.0, rows_of_kinds(), kind);
    check_type({DType::float16}, 1024.0, rows_of_kinds(), kind);
  }
}

TEST(NarrowLayouts, HaveOneAnswerWithGradientsInBf16) {
  const Types narrow{DType::bfloat16, true};
  check_type(narrow, 1.0, gradient_layouts());
  EXPECT_NE(run_alone(kWide, narrow, 1)[0].grad_norm,
            run_alone(kWide, {DType::bfloat16}, 1)[0].grad_norm);
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

// A scale that no gradient bears: every rank reports it in the same step, and the steps
// after give what they give without it.
TEST(NarrowLayouts, AnOverflowIsSeenByAllAndChangesNothing) {
  const auto world = layout_world();
  for_each_layout(*world, narrow_layouts(), [&](const auto& ranks, const Layout& layout) {
    NarrowRun run(ranks, layout, {DType::float16}),
        plain(ranks, layout, {DType::float16});
    const optim::StepReport bad = run.step(0, 0x1p40);
    EXPECT_FALSE(bad.is_finite());
    EXPECT_TRUE(bad.has_finite_losses());
    expect_same_steps(run, plain);
  });
}

// One gradient of one rank, for every rank in turn: of the first and the last of each
// axis, among others.
TEST(NarrowLayouts, AnOverflowOfAnyRankIsSeenByAll) {
  const auto world = layout_world();
  for_each_layout(*world, narrow_layouts(), [&](const auto& ranks, const Layout& layout) {
    NarrowRun run(ranks, layout, {DType::float16}),
        plain(ranks, layout, {DType::float16});
    for (int rank = 0; rank < ranks->size(); ++rank) {
      const optim::StepReport bad = run.step(0, 1024.0, ranks->rank() == rank);
      EXPECT_FALSE(bad.is_finite()) << "planted on rank " << rank;
      EXPECT_TRUE(bad.has_finite_losses()) << "planted on rank " << rank;
    }
    expect_same_steps(run, plain);
  });
}

}  // namespace
}  // namespace trireme::test

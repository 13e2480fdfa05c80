// Models that compute in 16 bits: layouts agree with one rank within the rounding of the
// type, the same layout to the bit with itself, and an overflow in fp16 is seen by all
// ranks in the same step and leaves every weight as it was. All of the covering array is
// in test_narrow_covering.cpp, of the label long.
#include <gtest/gtest.h>

#include "layouts/narrow_run.hpp"

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

void check_type(const Types& type, double scale, std::vector<Layout> layouts,
                Kind kind = Kind::gpt) {
  for (Layout& layout : layouts) layout.size.kind = kind;
  const bool is_half = type.compute == DType::float16;
  // Tolerances were measured with GPT; another kind's norm was 1.7e-3 apart in fp16.
  const double times = kind == Kind::gpt ? 1.0 : 4.0;
  const double of_loss =
      times * (is_half ? Tolerances<fp16>::kLoss : Tolerances<bf16>::kLoss);
  const double of_norm =
      times * (is_half ? Tolerances<fp16>::kNorm : Tolerances<bf16>::kNorm);
  const auto world = layout_world();
  MatrixSize of_wide = kWide, of_deep = kDeep;
  of_wide.kind = of_deep.kind = kind;
  const auto wide = run_alone(of_wide, type, kNarrowSteps, scale),
             deep = run_alone(of_deep, type, kNarrowSteps, scale);
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    const auto& want = layout.size.layers == kDeep.layers ? deep : wide;
    NarrowRun run(ranks, layout, type), again(ranks, layout, type);
    for (int step = 0; step < kNarrowSteps; ++step) {
      const optim::StepReport report = run.step(step, scale);
      const double loss = want[extent(step)].losses[0].mean();
      EXPECT_NEAR(report.losses[0].mean(), loss, of_loss * loss) << "step " << step + 1;
      EXPECT_NEAR(report.grad_norm, want[extent(step)].grad_norm,
                  of_norm * want[extent(step)].grad_norm)
          << "step " << step + 1;
      const optim::StepReport same = again.step(step, scale);
      EXPECT_EQ(same.losses[0].sum, report.losses[0].sum) << "again, step " << step + 1;
      EXPECT_EQ(same.grad_norm, report.grad_norm) << "again, step " << step + 1;
    }
  });
}

TEST(NarrowLayouts, HaveOneAnswerInBf16) {
  check_type({DType::bfloat16}, 1.0, narrow_layouts());
}

// Rows of other kinds of model: along each axis one, and with stages.
std::vector<Layout> rows_of_kinds() {
  std::vector<Layout> rows = {
      {.tensor = 2, .sequence = 1, .data = 2, .zero = 2, .microbatches = 2}};
  for (Layout deep :
       {Layout{.tensor = 2, .sequence = 1, .microbatches = 4, .pipeline = 2, .chunks = 2},
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
    SCOPED_TRACE(static_cast<int>(kind));
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
    EXPECT_TRUE(got.is_finite()) << "step " << step + 1;
    EXPECT_EQ(got.losses[0].sum, want.losses[0].sum) << "step " << step + 1;
    EXPECT_EQ(got.grad_norm, want.grad_norm) << "step " << step + 1;
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

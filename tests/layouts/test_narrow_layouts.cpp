// Models that compute in 16 bits: layouts agree with one rank within the rounding of the
// type, the same layout to the bit with itself, and an overflow in fp16 is seen by all
// ranks in the same step and leaves every weight as it was.
#include <gtest/gtest.h>

#include "comm/self_communicator.hpp"
#include "layouts/layout_matrix.hpp"
#include "step/replica.hpp"

namespace trireme::test {
namespace {

constexpr int kNarrowSteps = 6;

// A training in one layout and type.
class NarrowRun {
 public:
  NarrowRun(const std::shared_ptr<comm::Communicator>& world, const Layout& layout,
            DType type)
      : layout_(layout),
        grid_(world, layout.grid()),
        replica_(step::make_replica(type, grid_.groups(), matrix_blueprint(layout.size),
                                    layout.sharing())),
        samples_(replica_->part().blueprint.batch, layout.micro()) {
    replica_->begin_training(Exec(), layout.step_shape(),
                             {.adamw = {.weight_decay = 0.1}, .clip_norm = 1.0});
    replica_->initialize(4321);
  }
  optim::StepReport step(int number, double loss_scale = 1.0, bool overflows = false) {
    const index_t samples = layout_.size.samples, share = samples / layout_.data;
    const index_t first = number * samples + grid_.coordinates().data * share;
    return replica_->step(
        {.number = number + 1,
         .learning_rate = 1e-3,
         .loss_scale = loss_scale,
         .microbatches = layout_.microbatches,
         .fetch = [&](int m) { return samples_.batch(first + m * layout_.micro()); },
         .sum = [&](const auto&) { return MatrixSamples::counted(first, first + share); },
         .overflows = overflows});
  }

 private:
  Layout layout_;
  comm::RankGrid grid_;
  std::unique_ptr<step::Replica> replica_;
  MatrixSamples samples_;
};

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

std::vector<optim::StepReport> alone(const MatrixSize& size, DType type, double scale) {
  Layout one;
  one.size = size;
  NarrowRun run(comm::make_self_communicator("world"), one, type);
  std::vector<optim::StepReport> reports;
  for (int step = 0; step < kNarrowSteps; ++step)
    reports.push_back(run.step(step, scale));
  return reports;
}

void check_type(DType type, double scale) {
  const bool is_half = type == DType::float16;
  const double of_loss = is_half ? Tolerances<fp16>::kLoss : Tolerances<bf16>::kLoss;
  const double of_norm = is_half ? Tolerances<fp16>::kNorm : Tolerances<bf16>::kNorm;
  const auto world = layout_world();
  const auto wide = alone(kWide, type, scale), deep = alone(kDeep, type, scale);
  for_each_layout(*world, narrow_layouts(), [&](const auto& ranks, const Layout& layout) {
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
  check_type(DType::bfloat16, 1.0);
}

TEST(NarrowLayouts, HaveOneAnswerInFp16) {
  check_type(DType::float16, 1024.0);
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
    NarrowRun run(ranks, layout, DType::float16), plain(ranks, layout, DType::float16);
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
    NarrowRun run(ranks, layout, DType::float16), plain(ranks, layout, DType::float16);
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

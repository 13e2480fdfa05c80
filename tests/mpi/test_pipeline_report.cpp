// What a pipeline's passes took, beside its schedule simulated with them: against the
// closed formulas of equal stages.
#include <gmock/gmock.h>

#include <chrono>

#include "comm/mpi_communicator.hpp"
#include "step/pipeline_report.hpp"

namespace trireme::step {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int kMicrobatches = 8;  // any number of stages divides it
constexpr StepShape kShape{.micro = 1, .sequence = 8, .microbatches = kMicrobatches};

model::Blueprint of_layers(index_t layers) {
  return model::make_blueprint({.layers = layers,
                                .hidden = 8,
                                .heads = 1,
                                .kv_heads = 1,
                                .ffn_hidden = 32,
                                .sequence = 8,
                                .vocab = 16});
}

PipelineLayout layout_of(int stages, int chunks) {
  return {.stages = stages,
          .chunks = chunks,
          .split = schedule::Split(static_cast<std::size_t>(stages * chunks), 1)};
}

TEST(PipelineReportOfPasses, AreMeans) {
  PassTimes times(2);
  EXPECT_EQ(times.mean(1, Pass::backward), 0.0);
  times.add(1, Pass::backward, milliseconds(2));
  times.add(1, Pass::backward, milliseconds(4));
  times.add(0, Pass::backward, milliseconds(9));
  times.add_message(milliseconds(1));
  times.add_step(milliseconds(100));
  times.add_step(milliseconds(300));
  EXPECT_DOUBLE_EQ(times.mean(1, Pass::backward), 3e-3);
  EXPECT_DOUBLE_EQ(times.mean(0, Pass::backward), 9e-3);
  EXPECT_EQ(times.mean(1, Pass::forward), 0.0);
  EXPECT_DOUBLE_EQ(times.mean_message(), 1e-3);
  EXPECT_DOUBLE_EQ(times.mean_step(), 0.2);
  EXPECT_EQ(times.steps(), 2);
}

// (p - 1)/(v m) of the work is idle; what was measured is that of the slowest stage.
TEST(PipelineReportTogether, IsThatOfTheFormula) {
  const auto world = comm::make_mpi_world();
  const int p = world->size();
  for (const int v : {1, 2}) {
    const PipelineLayout layout = layout_of(p, v);
    PassTimes times(static_cast<std::size_t>(v));
    for (int chunk = 0; chunk < v; ++chunk) {
      times.add(chunk, Pass::forward, milliseconds(10));
      times.add(chunk, Pass::backward, milliseconds(20));
    }
    const int work = 30 * v * kMicrobatches;  // milliseconds
    EXPECT_FALSE(report_pipeline(layout, of_layers(p * v), kShape, *world, times, 0.0))
        << "before there was a step";
    times.add_step(milliseconds(2 * work + world->rank()));
    const auto report =
        report_pipeline(layout, of_layers(p * v), kShape, *world, times, 0.0);
    if (p == 1 || !kHostExecution) {
      EXPECT_FALSE(report.has_value());
      continue;
    }
    ASSERT_TRUE(report.has_value());
    EXPECT_NEAR(report->work, 1e-3 * work, 1e-9);
    EXPECT_NEAR(report->simulated.value(), 1e-3 * (work + 30 * (p - 1)), 1e-9);
    const double theory = static_cast<double>(p - 1) / (v * kMicrobatches);
    EXPECT_NEAR(report->simulated_bubble(), theory, 1e-9);
    EXPECT_NEAR(report->theoretical_bubble().value(), theory, 1e-12);
    EXPECT_NEAR(report->ideal, report->simulated.value(), 1e-9);
    EXPECT_NEAR(report->measured, 1e-3 * (2 * work + p - 1), 1e-9);
    EXPECT_NEAR(report->measured_bubble(),
                1.0 + static_cast<double>(p - 1) / static_cast<double>(work), 1e-9);
    EXPECT_THAT(report->text(), HasSubstr(fmt::format(
                                    "Pipeline: {} stages of {}, 1f1b, 8 micro-batches a "
                                    "step\n",
                                    p, v == 1 ? "1 chunk" : "2 chunks")));
    EXPECT_THAT(report->text(), HasSubstr("bubble: theory "));
    PipelineReport bubbleless = *report;
    bubbleless.schedule = schedule::PipelineSchedule::zero_bubble;
    EXPECT_FALSE(bubbleless.theoretical_bubble());
  }
}

// A stage that takes longer than was thought, and messages that take of its time.
TEST(PipelineReportTogether, HasTheCostsThatWereMeasured) {
  const auto world = comm::make_mpi_world();
  const int p = world->size();
  if (p == 1 || !kHostExecution) return;
  PassTimes times;
  const int slower = world->rank() == p - 1 ? 2 : 1;
  times.add(0, Pass::forward, milliseconds(10 * slower));
  times.add(0, Pass::backward, milliseconds(20 * slower));
  times.add_step(milliseconds(1));
  const PipelineLayout layout = layout_of(p, 1);
  const auto quiet = report_pipeline(layout, of_layers(p), kShape, *world, times, 0.0);
  ASSERT_TRUE(quiet.has_value());
  EXPECT_NEAR(quiet->work, 1e-3 * 60 * kMicrobatches, 1e-9);
  // The last stage begins when the first micro-batch has come to it, and what it does
  // last goes back through the others.
  EXPECT_NEAR(quiet->simulated.value(), quiet->work + 1e-3 * 30 * (p - 1), 1e-9);
  // Kernels alone take a third of the passes, on every stage.
  const auto kernels = report_pipeline(layout, of_layers(p), kShape, *world, times,
                                       times.work_of_a_step() / 3);
  EXPECT_NEAR(kernels->simulated.value(), quiet->simulated.value(), 1e-9);
  EXPECT_NEAR(kernels->ideal, quiet->simulated.value() / 3, 1e-9);
  EXPECT_NEAR(kernels->ideal_work, quiet->work / 3, 1e-9);
  times.add_message(milliseconds(5));
  const auto busy = report_pipeline(layout, of_layers(p), kShape, *world, times, 0.0);
  EXPECT_GT(busy->simulated.value(), quiet->simulated.value() + 1e-3 * 5 * kMicrobatches);
}

}  // namespace
}  // namespace trireme::step

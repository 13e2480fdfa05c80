// The covering arrays of layouts, with and without pipelines, over 40 steps: in bf16,
// with gradients in fp32 and in bf16, every loss within the promise of one rank's; in
// fp32 as well, whose distance the page on precision sets beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "layouts/narrow_run.hpp"

namespace trireme::test {
namespace {

constexpr int kLongSteps = 40;

std::vector<Layout> covering_pipelines() {
  std::vector<Layout> layouts = all_pipelines(8);
  std::erase_if(layouts, [](const Layout& layout) { return layout.microbatches == 2; });
  return covering(layouts);
}

// Says how far the losses of all layouts come from one rank's, and in which step.
void check_covering(const std::vector<Layout>& layouts, const Types& types,
                    double tolerance) {
  const auto world = layout_world();
  const auto want = run_alone(layouts.front().size, types, kLongSteps);
  EXPECT_GT(want.back().losses[0].mean(), 0.01) << "the promise ends there";
  double worst = 0.0;
  int worst_step = 0;
  for_each_layout(*world, layouts, [&](const auto& ranks, const Layout& layout) {
    NarrowRun run(ranks, layout, types);
    for (int step = 0; step < kLongSteps; ++step) {
      const double loss = want[extent(step)].losses[0].mean();
      const double norm = want[extent(step)].grad_norm;
      const optim::StepReport report = run.step(step);
      const double got = report.losses[0].mean();
      EXPECT_NEAR(got, loss, tolerance * loss) << "step " << step + 1;
      EXPECT_NEAR(report.grad_norm, norm, 0.05 * norm) << "step " << step + 1;
      const double distance = std::abs(got - loss) / loss;
      if (distance > worst) worst_step = step + 1;
      worst = std::max(worst, distance);
    }
  });
  const std::vector<double> all = world->gather(worst);
  const std::vector<std::int64_t> steps = world->gather(std::int64_t{worst_step});
  const auto most = std::ranges::max_element(all);
  if (world->rank() == 0) {
    std::printf("losses from %.3f to %.3f; furthest apart: %.2g in step %d\n",
                want.front().losses[0].mean(), want.back().losses[0].mean(), *most,
                static_cast<int>(steps[extent(most - all.begin())]));
  }
}

// Rows of each kind of both arrays.
void check_some(const Types& types, double tolerance) {
  check_covering(of_each_kind(covering(all_layouts(8))), types, tolerance);
  check_covering(of_each_kind(covering_pipelines()), types, tolerance);
}

TEST(NarrowCovering, InFp32IsTheMeasure) {
  check_some({DType::float32}, 5e-6);
}
TEST(NarrowCovering, InBf16HasOneAnswer) {
  check_covering(covering(all_layouts(8)), {DType::bfloat16}, kNarrowTolerance);
}
TEST(NarrowCovering, OfPipelinesInBf16HasOneAnswer) {
  check_covering(covering_pipelines(), {DType::bfloat16}, kNarrowTolerance);
}
TEST(NarrowCovering, WithGradientsInBf16HasOneAnswer) {
  check_some({DType::bfloat16, true}, kNarrowTolerance);
}

}  // namespace
}  // namespace trireme::test

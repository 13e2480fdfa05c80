// The pictures of docs/pipeline.md are these schedules' own timelines.
// TRIREME_UPDATE_DOCS=1 draws them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "unit/schedule/pipelines.hpp"

namespace trireme::schedule {
namespace {

constexpr double kUnit = 17.0;  // pixels of a unit of time
constexpr int kRow = 26, kLeft = 70, kTop = 34;

std::string color_of(const Action& action) {
  const bool later_chunk = action.chunk % 2 == 1;
  switch (action.kind) {
    case Action::Kind::forward:
      return later_chunk ? "#3d6fa8" : "#8fb8e0";
    case Action::Kind::backward_weight:
      return later_chunk ? "#b5762a" : "#eec07b";
    default:
      return later_chunk ? "#3f8a55" : "#9ad1a8";
  }
}

void add_pass(std::string& svg, const Action& action, const Interval& interval, int row) {
  const double x = kLeft + kUnit * interval.begin;
  const double width = kUnit * (interval.end - interval.begin);
  const int y = kTop + kRow * row;
  const bool dark = action.chunk % 2 == 1;
  svg += fmt::format(
      "  <rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" "
      "stroke=\"#ffffff\"/>\n",
      x, y, width, kRow - 6, color_of(action));
  svg += fmt::format(
      "  <text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
      x + width / 2, y + 14, dark ? "#ffffff" : "#1b1b1b", action.microbatch + 1);
}

// A row for each stage, time to the right; numbers are micro-batches.
std::string svg_of(const PipelineShape& shape, const std::vector<Order>& orders,
                   const Costs& costs, const std::string& title) {
  const Timeline timeline = simulate(shape, orders, costs);
  const int width = kLeft + static_cast<int>(kUnit * timeline.seconds) + 20;
  const int height = kTop + kRow * shape.stages + 6;
  const std::string head =
      fmt::format("{}: bubble {:.1f} % of the work", title, 100.0 * bubble_of(timeline));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" font-family=\"system-ui, sans-serif\" "
      "font-size=\"11\">\n"
      "  <title>Timeline of {2} stages and {3} micro-batches, {4}</title>\n"
      "  <rect width=\"{0}\" height=\"{1}\" rx=\"6\" fill=\"#fdfdfb\"/>\n"
      "  <text x=\"8\" y=\"20\" font-size=\"13\">{4}</text>\n",
      width, height, shape.stages, shape.microbatches, head);
  for (int stage = 0; stage < shape.stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    svg += fmt::format("  <text x=\"8\" y=\"{}\">stage {}</text>\n",
                       kTop + kRow * stage + 14, stage);
    for (std::size_t i = 0; i < orders[s].size(); ++i) {
      add_pass(svg, orders[s][i], timeline.stages[s][i], stage);
    }
  }
  return svg + "</svg>\n";
}

void expect_picture(const std::string& name, const std::string& svg) {
  const char* root = std::getenv("TRIREME_SOURCE_DIR");
  ASSERT_NE(root, nullptr);
  const std::string path = std::string(root) + "/docs/images/" + name;
  if (std::getenv("TRIREME_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << svg;
    return;
  }
  std::ostringstream found;
  found << std::ifstream(path).rdbuf();
  EXPECT_EQ(found.str(), svg) << path
                              << " is out of date: TRIREME_UPDATE_DOCS=1 ctest -R "
                              << "unit.schedule";
}

TEST(Timelines, AreThoseOfTheDocs) {
  const PipelineShape plain{.stages = 4, .microbatches = 8};
  const PipelineShape chunks{.stages = 4, .chunks = 2, .microbatches = 8};
  // As many units for the whole model: chunks take half.
  const Costs whole = equal_costs(plain, {2.0, 2.0, 2.0});
  const Costs halves = equal_costs(chunks, {1.0, 1.0, 1.0});
  expect_picture("pipeline_gpipe.svg",
                 svg_of(plain, gpipe_orders(plain), whole, "gpipe"));
  expect_picture("pipeline_1f1b.svg",
                 svg_of(plain, interleaved_orders(plain, 1), whole, "1f1b"));
  expect_picture("pipeline_interleaved.svg", svg_of(chunks, interleaved_orders(chunks, 2),
                                                    halves, "1f1b, virtual_pipeline: 2"));
  expect_picture("pipeline_zero_bubble.svg",
                 svg_of(plain, zero_bubble(plain, whole), whole, "zero_bubble"));
}

}  // namespace
}  // namespace trireme::schedule

// step/pipeline_report.cpp — see pipeline_report.hpp.
#include "step/pipeline_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/format.hpp"
#include "comm/communicator.hpp"
#include "config/enums.hpp"
#include "model/blueprint.hpp"
#include "schedule/pipeline.hpp"

namespace trireme::step {

namespace {

// What the passes of the busiest stage take, without its messages.
double most_work(const schedule::PipelineShape& shape, const schedule::Costs& costs) {
  double most = 0.0;
  for (int stage = 0; stage < shape.stages; ++stage) {
    double work = 0.0;
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      work += costs.pieces[static_cast<std::size_t>(shape.piece(stage, chunk))].total();
    }
    most = std::max(most, work * shape.microbatches);
  }
  return most;
}

}  // namespace

std::string PipelineReport::text() const {
  std::string times, bubbles;
  if (simulated) {
    times = fmt::format("simulated {}, ", format_duration(*simulated));
    bubbles = fmt::format("simulated {}, ", format_percent(simulated_bubble()));
  }
  return fmt::format(
      "Pipeline: {} of {}, {}, {} a step\n  passes of a step: {}measured {}\n  bubble: "
      "{}measured {} of the work\n",
      format_plural(shape.stages, "stage"), format_plural(shape.chunks, "chunk"),
      config::name_of(schedule),
      format_plural(shape.microbatches, "micro-batch", "micro-batches"), times,
      format_duration(measured), bubbles, format_percent(measured_bubble()));
}

std::optional<PipelineReport> report_pipeline(const PipelineLayout& layout,
                                              const model::Blueprint& blueprint,
                                              const StepShape& shape,
                                              comm::Communicator& pipeline,
                                              const PassTimes& times) {
  if (layout.stages == 1 || times.steps() == 0) return {};
  PipelineReport report{.shape = layout.shape(shape.microbatches),
                        .schedule = layout.schedule,
                        .simulated = {}};
  schedule::Costs costs = modelled_costs(layout, blueprint, shape);
  // What ranks do is planned with the modelled costs, and takes the measured ones.
  const schedule::OrderOf planned =
      schedule::choose_orders(report.shape, layout.schedule, costs).order_of;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const std::vector<double> forward = pipeline.gather(times.mean(chunk, Pass::forward));
    const std::vector<double> backward =
        pipeline.gather(times.mean(chunk, Pass::backward));
    const std::vector<double> weight =
        pipeline.gather(times.mean(chunk, Pass::backward_weight));
    for (int stage = 0; stage < layout.stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const auto piece = static_cast<std::size_t>(report.shape.piece(stage, chunk));
      costs.pieces[piece] = {forward[s], backward[s], weight[s]};
    }
  }
  costs.message_work = pipeline.all_reduce(times.mean_message()) / layout.stages;
  if (schedule::is_simulated(report.shape, layout.schedule)) {
    const schedule::Timeline timeline = schedule::simulate(
        report.shape, schedule::orders_of_all(report.shape, planned), costs);
    report.simulated = timeline.seconds;
    report.work = *std::max_element(timeline.busy.begin(), timeline.busy.end());
  } else {
    report.work = most_work(report.shape, costs);
  }
  report.measured = pipeline.all_reduce(times.mean_step(), comm::Op::max);
  return report;
}

}  // namespace trireme::step

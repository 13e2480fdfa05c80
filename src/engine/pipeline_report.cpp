// engine/pipeline_report.cpp — see pipeline_report.hpp.
#include "engine/pipeline_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/exec.hpp"
#include "engine/format.hpp"

namespace trireme::engine {

std::string PipelineReport::text() const {
  return fmt::format(
      "Pipeline: {} stages of {}, {}, {} a step\n"
      "  passes of a step: simulated {}, measured {}\n"
      "  bubble: simulated {}, measured {} of the work\n",
      shape.stages, format_plural(shape.chunks, "chunk"), config::name_of(schedule),
      format_plural(shape.microbatches, "micro-batch", "es"), format_duration(simulated),
      format_duration(measured), format_percent(simulated_bubble()),
      format_percent(measured_bubble()));
}

std::optional<PipelineReport> report_pipeline(const PipelineLayout& layout,
                                              const model::GptConfig& config,
                                              const StepShape& shape,
                                              comm::Communicator& pipeline,
                                              const PassTimes& times) {
  using Pass = PassTimes::Pass;
  if (layout.stages == 1 || !kHostExecution || times.steps() == 0) return {};
  PipelineReport report{.shape = layout.shape(shape.microbatches),
                        .schedule = layout.schedule};
  schedule::Costs costs = modelled_costs(layout, config, shape);
  // What ranks do is planned with the modelled costs, and takes the measured ones.
  const schedule::Choice planned =
      schedule::choose_orders(report.shape, layout.schedule, costs);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const std::vector<double> forward = pipeline.gather(times.mean(chunk, Pass::forward));
    const std::vector<double> backward =
        pipeline.gather(times.mean(chunk, Pass::backward));
    const std::vector<double> weight = pipeline.gather(times.mean(chunk, Pass::weight));
    for (int stage = 0; stage < layout.stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const auto piece = static_cast<std::size_t>(report.shape.piece(stage, chunk));
      costs.pieces[piece] = {forward[s], backward[s], weight[s]};
    }
  }
  costs.message_work = pipeline.all_reduce(times.mean_message()) / layout.stages;
  const schedule::Timeline timeline =
      schedule::simulate(report.shape, planned.orders, costs);
  report.simulated = timeline.seconds;
  report.work = *std::max_element(timeline.busy.begin(), timeline.busy.end());
  report.measured = pipeline.all_reduce(times.mean_step(), comm::Op::max);
  return report;
}

}  // namespace trireme::engine

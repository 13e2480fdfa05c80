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

// Pieces take what the passes of their stages took, or a share of that.
void set_pieces(schedule::Costs& costs, const schedule::PipelineShape& shape,
                comm::Communicator& pipeline, const PassTimes& times, double share) {
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const auto seconds = [&](Pass pass) {
      return pipeline.gather(share * times.mean(chunk, pass));
    };
    const std::vector<double> forward = seconds(Pass::forward);
    const std::vector<double> backward = seconds(Pass::backward);
    const std::vector<double> weight = seconds(Pass::backward_weight);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const auto piece = static_cast<std::size_t>(shape.piece(stage, chunk));
      costs.pieces[piece] = {forward[s], backward[s], weight[s]};
    }
  }
}

}  // namespace

std::optional<double> PipelineReport::theoretical_bubble() const {
  if (schedule == schedule::PipelineSchedule::zero_bubble) return {};
  const double passes = 1.0 * shape.chunks * shape.microbatches;
  return (shape.stages - 1) / passes;
}

// Bubbles that are to be compared: a whole percent would make 11.6 and 12.4 alike.
std::string PipelineReport::text() const {
  std::string times, bubbles;
  const auto share = [](double fraction) {
    return fmt::format("{:.1f}%", 100.0 * fraction);
  };
  if (const std::optional<double> theory = theoretical_bubble()) {
    bubbles = fmt::format("theory {}, ", share(*theory));
  }
  if (simulated) {
    times = fmt::format("simulated {}, ", format_duration(*simulated));
    bubbles += fmt::format("simulated {}, ", share(simulated_bubble()));
  }
  return fmt::format(
      "Pipeline: {} of {}, {}, {} a step\n  passes of a step: {}measured {}\n  bubble: "
      "{}measured {} of the work\n  on an ideal network kernels alone: {}, bubble {}\n",
      format_plural(shape.stages, "stage"), format_plural(shape.chunks, "chunk"),
      config::name_of(schedule),
      format_plural(shape.microbatches, "micro-batch", "micro-batches"), times,
      format_duration(measured), bubbles, share(measured_bubble()),
      format_duration(ideal), share(ideal_bubble()));
}

std::optional<PipelineReport> report_pipeline(const PipelineLayout& layout,
                                              const model::Blueprint& blueprint,
                                              const StepShape& shape,
                                              comm::Communicator& pipeline,
                                              const PassTimes& times, double kernels) {
  if (layout.stages == 1 || times.steps() == 0) return {};
  PipelineReport report{.shape = layout.shape(shape.microbatches),
                        .schedule = layout.schedule,
                        .simulated = {}};
  schedule::Costs costs = modelled_costs(layout, blueprint, shape);
  // What ranks do is planned with the modelled costs, and takes the measured ones.
  const schedule::OrderOf planned =
      schedule::choose_orders(report.shape, layout.schedule, costs).order_of;
  const double work = times.work_of_a_step();
  const double share = kernels > 0.0 && work > 0.0 ? std::min(1.0, kernels / work) : 1.0;
  schedule::Costs ideal = costs;
  set_pieces(costs, report.shape, pipeline, times, 1.0);
  set_pieces(ideal, report.shape, pipeline, times, share);
  costs.message_work = pipeline.all_reduce(times.mean_message()) / layout.stages;
  ideal.message = ideal.message_work = 0.0;
  report.ideal_work = most_work(report.shape, ideal);
  if (schedule::is_simulated(report.shape, layout.schedule)) {
    const std::vector<schedule::Order> orders =
        schedule::orders_of_all(report.shape, planned);
    const schedule::Timeline timeline = schedule::simulate(report.shape, orders, costs);
    report.simulated = timeline.seconds;
    report.work = *std::max_element(timeline.busy.begin(), timeline.busy.end());
    report.ideal = schedule::simulate(report.shape, orders, ideal).seconds;
  } else {
    report.work = most_work(report.shape, costs);
    // Each stage waits for the others' passes of one micro-batch, at both ends of a step.
    const double slots = static_cast<double>(layout.stages - 1) /
                         (report.shape.microbatches * layout.chunks);
    report.ideal = report.ideal_work * (1.0 + slots);
  }
  report.measured = pipeline.all_reduce(times.mean_step(), comm::Op::max);
  return report;
}

}  // namespace trireme::step

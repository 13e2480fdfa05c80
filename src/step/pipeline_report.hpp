// step/pipeline_report.hpp — what a pipeline's steps took beside what its schedule says
// they take, with the passes as they were measured.
#ifndef TRIREME_STEP_PIPELINE_REPORT_HPP_
#define TRIREME_STEP_PIPELINE_REPORT_HPP_

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/blueprint.hpp"
#include "schedule/pipeline.hpp"
#include "step/pipeline.hpp"

namespace trireme::step {

// Seconds of one rank: in the passes of its chunks, in beginning messages, and in all
// passes of a step together, waits included; by the clock of what computes them.
class PassTimes {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PassTimes(std::size_t chunks = 1) : passes_(chunks) {}

  // A backward pass without its weight gradients counts as one: of a chunk all are alike.
  void add(int chunk, Pass pass, Clock::duration duration) {
    if (pass == Pass::backward_input) pass = Pass::backward;
    passes_.at(static_cast<std::size_t>(chunk))[static_cast<std::size_t>(pass)].add(
        duration);
  }
  void add_message(Clock::duration duration) { messages_.add(duration); }
  void add_step(Clock::duration duration) { steps_.add(duration); }

  double mean(int chunk, Pass pass) const {
    return passes_.at(static_cast<std::size_t>(chunk))[static_cast<std::size_t>(pass)]
        .mean();
  }
  double mean_message() const { return messages_.mean(); }
  // In all passes of a step, without the waits between them.
  double work_of_a_step() const {
    double sum = 0.0;
    for (const auto& chunk : passes_) {
      for (const Sum& pass : chunk) sum += pass.seconds;
    }
    return steps_.count == 0 ? 0.0 : sum / static_cast<double>(steps_.count);
  }
  double mean_step() const { return steps_.mean(); }
  std::int64_t steps() const { return steps_.count; }

 private:
  struct Sum {
    double seconds = 0.0;
    std::int64_t count = 0;
    void add(Clock::duration duration) {
      seconds += std::chrono::duration<double>(duration).count();
      count += 1;
    }
    double mean() const {
      return count == 0 ? 0.0 : seconds / static_cast<double>(count);
    }
  };
  std::vector<std::array<Sum, 4>> passes_;
  Sum messages_, steps_;
};

// Seconds of the passes of one step.
struct PipelineReport {
  schedule::PipelineShape shape;
  schedule::PipelineSchedule schedule = schedule::PipelineSchedule::one_f_one_b;
  double measured = 0.0;
  double work = 0.0;  // of the stage with most
  // Nothing where the pipeline has too many passes (schedule::is_simulated).
  std::optional<double> simulated;
  // The same orders of the passes' kernels alone, had messages taken no time, and the
  // kernels of the stage with most: POP's ideal network. Of this rank's pipeline.
  double ideal = 0.0, ideal_work = 0.0;

  // Of equal passes and messages that take no time, (p - 1) / (v m) of the work
  // (Narayanan et al. 2021, section 2.2); nothing for zero-bubble orders, which no such
  // formula describes.
  std::optional<double> theoretical_bubble() const;
  double simulated_bubble() const { return simulated.value() / work - 1.0; }
  double ideal_bubble() const {
    return ideal_work > 0.0 ? ideal / ideal_work - 1.0 : 0.0;
  }
  double measured_bubble() const { return measured / work - 1.0; }
  std::string text() const;  // ends with a newline
};

// Collective over the pipeline; nothing for one stage, or before there was a step.
// `kernels`: seconds in kernels of all passes of a step of this rank, which otherwise
// also launches them and sends messages there; 0: not known.
std::optional<PipelineReport> report_pipeline(const PipelineLayout& layout,
                                              const model::Blueprint& blueprint,
                                              const StepShape& shape,
                                              comm::Communicator& pipeline,
                                              const PassTimes& times, double kernels);

}  // namespace trireme::step

#endif  // TRIREME_STEP_PIPELINE_REPORT_HPP_

// schedule/simulate.hpp — what a pipeline's orders of work take: every pass and message
// at its time, known before anything runs.
#ifndef TRIREME_SCHEDULE_SIMULATE_HPP_
#define TRIREME_SCHEDULE_SIMULATE_HPP_

#include <vector>

#include "schedule/pipeline.hpp"

namespace trireme::schedule {

// How long one micro-batch takes through one piece, in any unit of time.
struct PieceCost {
  double forward = 1.0;
  double backward_input = 1.0;
  double backward_weight = 1.0;
  double backward() const { return backward_input + backward_weight; }
  double total() const { return forward + backward(); }
};
inline PieceCost operator+(const PieceCost& a, const PieceCost& b) {
  return {a.forward + b.forward, a.backward_input + b.backward_input,
          a.backward_weight + b.backward_weight};
}

struct Costs {
  std::vector<PieceCost> pieces;  // in the order of the model
  double message = 0.0;           // from one stage to the next, beside the passes
  // What a pass takes of its stage's time for a message it waits for, or that it sends.
  double message_work = 0.0;
};

struct Interval {
  double begin = 0.0;
  double end = 0.0;
};

struct Timeline {
  std::vector<std::vector<Interval>> stages;  // of each pass of each stage's order
  std::vector<std::vector<double>> sent;      // when what it needs was sent
  double seconds = 0.0;                       // from the first begin to the last end
  std::vector<double> busy;                   // of each stage
};

// Runs orders of passes: each pass begins when its stage is free and what it needs has
// come; messages never wait for their receivers. Throws Error where the orders wait for
// each other for ever, and says which passes do.
Timeline simulate(const PipelineShape& shape, const std::vector<Order>& orders,
                  const Costs& costs);

// Orders in which weight gradients are computed when a stage would be idle otherwise (Qi
// et al. 2023, "Zero bubble pipeline parallelism"), found by going through the step with
// these costs. `in_flight`: the most (micro-batch, chunk) pairs whose saved tensors a
// stage keeps; 0 stands for as many as interleaved(), or 1F1B's first stage, needs.
std::vector<Order> zero_bubble(const PipelineShape& shape, const Costs& costs,
                               int in_flight = 0);

}  // namespace trireme::schedule

#endif  // TRIREME_SCHEDULE_SIMULATE_HPP_

// step/batch_plan.hpp — which samples make which micro-batch of which rank.
//
// Samples are taken in the order of the sample index: a step takes the next batch.global
// of them (fewer while batch.ramp_up rises), data rank d a contiguous d-th part, in
// micro-batches. Which samples make a step depends neither on the grid nor on where a run
// was stopped.
#ifndef TRIREME_STEP_BATCH_PLAN_HPP_
#define TRIREME_STEP_BATCH_PLAN_HPP_

#include <vector>

#include "base/types.hpp"
#include "config/deck.hpp"
#include "data/batch_loader.hpp"

namespace trireme::step {

class BatchPlan {
 public:
  // The plan of the steps that are left after `steps` steps, which took `samples`
  // samples.
  BatchPlan(const config::Deck& deck, index_t steps, index_t samples, int data_rank);

  // Samples of the step that starts after `samples` samples, and micro-batches of each
  // rank in it.
  index_t samples_of_step(index_t samples) const { return batch_.size_at(samples); }
  int microbatches(index_t samples) const {
    return static_cast<int>(samples_of_step(samples) / (batch_.micro * data_ranks_));
  }
  int most_microbatches() const {
    return static_cast<int>(batch_.global / (batch_.micro * data_ranks_));
  }
  // This rank's n-th micro-batch from here, n = 0, 1, 2 ...; no columns after the last
  // step.
  data::ColumnRange columns(index_t n) const;

 private:
  // Steps of one size, one after the other.
  struct Run {
    index_t first_batch = 0;   // micro-batches of this rank before it
    index_t first_sample = 0;  // of its first step
    index_t size = 0;          // samples of a step
    index_t steps = 0;
  };

  config::BatchConfig batch_;
  index_t data_ranks_;
  index_t data_rank_;
  std::vector<Run> runs_;
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_BATCH_PLAN_HPP_

// step/batch_plan.cpp — see batch_plan.hpp.
#include "step/batch_plan.hpp"

#include <algorithm>

#include "base/types.hpp"

namespace trireme::step {

BatchPlan::BatchPlan(const config::Deck& deck, index_t steps, index_t samples,
                     int data_rank)
    : batch_(deck.batch), data_ranks_(deck.parallel.data), data_rank_(data_rank) {
  const index_t last = deck.run.steps.steps;
  index_t batches = 0;
  while (steps < last) {
    Run run{.first_batch = batches, .first_sample = samples, .size = 0, .steps = 0};
    run.size = batch_.size_at(samples);
    if (run.size == batch_.global) {  // it stays there
      run.steps = last - steps;
    } else {
      while (steps + run.steps < last && batch_.size_at(samples) == run.size) {
        ++run.steps;
        samples += run.size;
      }
    }
    steps += run.steps;
    batches += run.steps * (run.size / (batch_.micro * data_ranks_));
    runs_.push_back(run);
  }
}

data::ColumnRange BatchPlan::columns(index_t n) const {
  const auto next = std::ranges::upper_bound(runs_, n, {}, &Run::first_batch);
  if (next == runs_.begin()) return {};
  const Run& run = *(next - 1);
  const index_t per_rank = run.size / data_ranks_;
  const index_t per_step = per_rank / batch_.micro;
  const index_t step = (n - run.first_batch) / per_step;
  if (step >= run.steps) return {};
  const index_t first = run.first_sample + step * run.size + data_rank_ * per_rank +
                        (n - run.first_batch) % per_step * batch_.micro;
  return {first, batch_.micro};
}

}  // namespace trireme::step

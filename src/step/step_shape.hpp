// step/step_shape.hpp — the sizes of a training step.
#ifndef TRIREME_STEP_STEP_SHAPE_HPP_
#define TRIREME_STEP_STEP_SHAPE_HPP_

#include <cstdint>
#include <vector>

#include "nn/context.hpp"

namespace trireme::step {

// One micro-batch: b samples of s tokens; and how many micro-batches one step has.
struct StepShape {
  index_t micro = 1;       // b
  index_t sequence = 1;    // s
  int microbatches = 1;    // of this rank, in one optimizer step
  std::uint64_t seed = 0;  // of dropout
  nn::Recompute recompute = {};
  // Other numbers of micro-batches that steps may have (batch.ramp_up).
  std::vector<int> other_microbatches = {};

  index_t rows() const { return micro * sequence; }
  // The fields of a micro-batch of this shape; of none the memory is known.
  nn::MicroBatch micro_batch(BatchSpec spec) const {
    spec.streams.at(0).sequence = sequence;
    return {spec, micro};
  }
};

}  // namespace trireme::step

#endif  // TRIREME_STEP_STEP_SHAPE_HPP_

// step/step_shape.hpp — the sizes of a training step.
#ifndef TRIREME_STEP_STEP_SHAPE_HPP_
#define TRIREME_STEP_STEP_SHAPE_HPP_

#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "kernels/attention.hpp"
#include "nn/context.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::step {

// One micro-batch: b samples of s tokens; and how many micro-batches one step has.
struct StepShape {
  index_t micro = 1;       // b
  index_t sequence = 1;    // s
  int microbatches = 1;    // of this rank, in one optimizer step
  std::uint64_t seed = 0;  // of dropout
  nn::Recompute recompute = {};
  kernels::AttentionLibrary attention = kernels::AttentionLibrary::own;
  // Other numbers of micro-batches that steps may have (batch.ramp_up).
  std::vector<int> other_microbatches = {};

  index_t rows() const { return micro * sequence; }
  // A model's batch with samples of this length, and a micro-batch of that whose fields
  // have no memory.
  BatchSpec batch_spec(BatchSpec of_model) const {
    of_model.streams.at(0).sequence = sequence;
    return of_model;
  }
  nn::MicroBatch micro_batch(const BatchSpec& of_model) const {
    return {batch_spec(of_model), micro};
  }
};

// Device memory of a field of a micro-batch: a multiple of what Views are aligned to.
inline std::size_t bytes_of_field(const BatchSpec& spec, std::size_t field,
                                  index_t samples) {
  constexpr std::size_t kAlignment = 64;
  const FieldSpec& of = spec.fields.at(field);
  const std::size_t bytes = extent(spec.elements(of, samples)) * size_of(of.type());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace trireme::step

#endif  // TRIREME_STEP_STEP_SHAPE_HPP_

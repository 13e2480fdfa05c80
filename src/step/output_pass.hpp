// step/output_pass.hpp — what a model gives that is made for its output (model::Use):
// vectors of texts, or words for what is left out of them.
//
// Samples go through the whole model together, a micro-batch at a time, by the forward
// pass of evaluation. Micro-batches may have fewer samples than the first, and shorter
// ones than the model takes: a caller that sorts its texts by length has little padding.
// With a tensor group every rank of it makes the same calls and gets the same numbers.
#ifndef TRIREME_STEP_OUTPUT_PASS_HPP_
#define TRIREME_STEP_OUTPUT_PASS_HPP_

#include <cstddef>
#include <memory>
#include <span>

#include "base/types.hpp"
#include "step/model_state.hpp"
#include "tensor/batch_spec.hpp"

namespace trireme::step {

// What leaves a model is of this type, whatever that computes in.
using OutputNumber = float;

class OutputPass {
 public:
  OutputPass(index_t samples, index_t columns) : samples_(samples), columns_(columns) {}
  virtual ~OutputPass() = default;

  // The output of the first `samples` samples of a micro-batch, whose streams are as long
  // as `sequences` says: (rows, columns), where rows are those of OutputSpec, of a stream
  // as activations are. Valid until the next call. Fields that no block reads may be
  // null. Error where a stream is longer than the model's, or is to be split and does not
  // divide by the tensor group.
  virtual std::span<const OutputNumber> run(const HostBatch& batch, index_t samples,
                                            std::span<const index_t> sequences) = 0;

  index_t samples() const { return samples_; }  // at most
  index_t columns() const { return columns_; }

 private:
  index_t samples_, columns_;
};

// The weights in `state` must be allocated and outlive the pass; they may change. Memory
// for so many full samples is taken once. Error for a model without an output, or of
// which this rank has a part.
template <class T>
std::unique_ptr<OutputPass> make_output_pass(const Exec& exec, ModelState<T>& state,
                                             index_t samples);
// Bytes of device memory, known before any are allocated.
template <class T>
std::size_t plan_output_pass(const ModelState<T>& state, index_t samples);

}  // namespace trireme::step

#endif  // TRIREME_STEP_OUTPUT_PASS_HPP_

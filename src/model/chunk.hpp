// model/chunk.hpp — what a pipeline stage holds: one or more chunks, each a run of
// consecutive parts of the model, the same for every kind of model.
//
// A micro-batch passes a chunk forward and backward in a *slot* that keeps its saved
// tensors. What comes in and goes out at a chunk's borders is a short list of named
// tensors (GPT: "hidden"), in memory of the caller's.
#ifndef TRIREME_MODEL_CHUNK_HPP_
#define TRIREME_MODEL_CHUNK_HPP_

#include <array>

#include "nn/context.hpp"

namespace trireme::model {

// A micro-batch on the device; all (rows), row r = position r / b of sample r % b.
struct Batch {
  View1<const std::int32_t> tokens;
  View1<const std::int32_t> positions;
  View1<const std::int32_t> labels;
  View1<const float> mask;  // 1 where the label counts for the loss
};

template <class T>
struct NamedTensor {
  const char* name = "";
  View2<T> value;
};

template <class T>
struct Boundary {
  static constexpr int kMaxTensors = 4;
  int count = 0;
  std::array<NamedTensor<T>, kMaxTensors> tensors;
};

using nn::WeightPass;

template <class T>
class Chunk {
 public:
  virtual ~Chunk() = default;

  // Slots there are; called once, before the first forward.
  virtual void set_slot_count(int slots) = 0;
  // What crosses the borders of this kind of model: names and shapes, without memory.
  virtual Boundary<T> boundary(const nn::Context& context) const = 0;

  // The units whose weights a forward or backward pass reads, without those borrowed.
  virtual PassUnits weight_units(Pass pass) const = 0;

  // From `in` (nothing on the first chunk), which must stay until the last pass of the
  // micro-batch, to `out` (nothing on the last chunk, which adds to totals: sum of mask *
  // loss, sum of mask).
  virtual void forward(const nn::Context& context, int slot, const Batch& batch,
                       const Boundary<T>& in, const Boundary<T>& out,
                       View1<double> totals) = 0;
  // From d_out, the gradients of `out`, to d_in, those of `in`. With WeightPass::later,
  // backward_weight must follow with the same context.held; it needs neither.
  virtual void backward(const nn::Context& context, int slot, const Batch& batch,
                        const Boundary<T>& d_out, const Boundary<T>& d_in,
                        WeightPass weight_pass) = 0;
  virtual void backward_weight(const nn::Context& context, int slot,
                               const Batch& batch) = 0;
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_CHUNK_HPP_

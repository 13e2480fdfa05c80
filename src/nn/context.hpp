// nn/context.hpp — what every layer call is handed: where to run, what step it is, with
// whom, and memory.
//
// Activations are (s, b, h) flattened to (s * b, h): row r is position r / b of sample r
// % b. With sequence parallelism each rank of the tensor group has, outside the
// tensor-parallel regions, a run of s / t positions: its *local* rows. Of a stream that
// is not split, such as the few words that a model predicts, each of them has all rows.
#ifndef TRIREME_NN_CONTEXT_HPP_
#define TRIREME_NN_CONTEXT_HPP_

#include <limits>

#include "base/exec.hpp"
#include "comm/group.hpp"
#include "comm/process_groups.hpp"
#include "kernels/attention.hpp"
#include "kernels/step_state.hpp"
#include "nn/micro_batch.hpp"
#include "tensor/arena.hpp"
#include "tensor/param_buffer.hpp"
#include "tensor/param_use.hpp"

namespace trireme::nn {

// Whether dropout is applied: evaluation and generation see the whole network.
enum class Mode { training, evaluation };

// Whether a backward pass follows a forward pass. A block that makes an objective may
// then take its gradients at once, while it has what they need; where none follows (an
// evaluation, a search for what is not finite) no gradient is touched.
enum class Gradients { taken, none };

// Weight gradients right after those of the inputs, or by a backward_weight later.
enum class WeightPass { now, later };

// What a forward pass does not keep: it is made again, to the bit, where it is used.
struct Recompute {
  static constexpr index_t kAllLayers = std::numeric_limits<index_t>::max();
  // Layers, from a chunk's first, that keep their input only (Chen et al. 2016).
  index_t layers = 0;
  // What a pass over rows can make again is not kept by any layer: the outputs of both
  // norms and of the MLP's activation, which weight gradients need.
  bool selective = false;

  bool operator==(const Recompute&) const = default;
};

struct Context {
  const Exec& exec;
  const comm::ProcessGroups& groups;
  kernels::StepStateView step;
  Arena* saved;    // until the micro-batch's weight-gradient pass
  Arena& scratch;  // until the end of the call
  Arena& held;     // from the input-gradient to the weight-gradient pass
  MicroBatch batch = {};
  // Sums over micro-batches, two for each objective: of weighted losses, and of weights.
  View1<double> totals = {};
  // Sums over ranks of what counts for each objective, on their way to the step state; a
  // block that makes an objective runs after their arrival.
  comm::Request* objective_counts = nullptr;
  Mode mode = Mode::training;
  Gradients gradients = Gradients::taken;  // never in an evaluation
  bool splits_sequence = false;            // the run is sequence-parallel
  ParamUse* params = nullptr;              // who is told what is in use
  Recompute recompute = {};
  kernels::AttentionLibrary attention = kernels::AttentionLibrary::own;
  int stream = 0;  // that rows are of

  // Contexts that differ from this one in a single thing: the arena that saved tensors go
  // to, or the stream whose rows count. Being copies, they cannot leave anything out.
  Context saving_in(Arena& arena) const {
    Context other = *this;
    other.saved = &arena;
    return other;
  }
  Context on_stream(int number) const {
    Context other = *this;
    other.stream = number;
    return other;
  }
  bool takes_gradients() const {
    return mode == Mode::training && gradients == Gradients::taken;
  }
  // (sum of mask * loss, sum of mask) of an objective; no memory on shapes alone.
  View1<double> totals_of(int objective) const {
    return {totals.data() == nullptr ? nullptr : totals.data() + 2 * objective, 2};
  }
  // Fields of the batch, by index. Error for one that a block reads and does not declare.
  View1<const std::int32_t> ids(std::size_t field) const {
    return loaded<std::int32_t>(field);
  }
  View1<const float> weights(std::size_t field) const { return loaded<float>(field); }
  // Where the tokens of a stream stand, (rows); how many positions of each sample are
  // real, (b). Null where the model has no such field: the tokens then stand at 0, 1, 2
  // ..., and all of them are real.
  View1<const std::int32_t> positions(int of) const {
    return ids_or_null(batch.at(of).positions);
  }
  View1<const std::int32_t> lengths(int of) const {
    return ids_or_null(batch.at(of).lengths);
  }
  index_t samples() const { return batch.samples; }               // b
  index_t sequence() const { return batch.at(stream).sequence; }  // s
  index_t rows() const { return sequence() * samples(); }
  // Whether this rank has a part of the rows outside the tensor-parallel regions.
  bool sequence_parallel() const { return splits_sequence && batch.at(stream).is_split; }
  index_t local_sequence() const {
    return sequence_parallel() ? sequence() / groups.tensor->size() : sequence();
  }
  index_t local_rows() const { return local_sequence() * samples(); }
  // Position of the first local row.
  index_t sequence_begin() const {
    return sequence_parallel() ? local_sequence() * groups.tensor->rank() : 0;
  }

 private:
  View1<const std::int32_t> ids_or_null(int field) const {
    return field < 0 ? View1<const std::int32_t>() : ids(extent(field));
  }
  template <class T>
  View1<const T> loaded(std::size_t field) const {
    const View1<const T> view = batch.view<T>(field);
    TRIREME_REQUIRE(view.data() != nullptr || exec.is_shape_only(),
                    "field {} of the micro-batch is not loaded: the block that reads it "
                    "does not declare it (BlockSpec::fields)",
                    field);
    return view;
  }
};

// What a layer is built from, besides its own dimensions.
template <class T>
struct Builder {
  ParamRegistry& registry;
  const ParamBuffer<T>& params;
  const comm::ProcessGroups& groups;
  // Whether the stream is split along the sequence on whose rows the layer works: of one
  // that is not, every tensor rank has the whole gradient.
  bool is_split = true;

  int tensor_size() const { return groups.tensor->size(); }
  int tensor_rank() const { return groups.tensor->rank(); }
  ParamRef<T> add(ParamSpec spec) const {
    spec.in_sequence_region = spec.in_sequence_region && is_split;
    return ParamRef<T>(registry, params, std::move(spec));
  }
};

// For calls of kernels, whose inputs are Views of const elements.
template <class T>
View1<const T> as_const(const View1<T>& view) {
  return view;
}
template <class T>
View2<const T> as_const(const View2<T>& view) {
  return view;
}

// A vector of parameters that the weight pass reads: as it is where that pass comes now;
// a copy of it in context.held where it comes later, when weights are not in use. Null
// where there is none.
template <class T>
View1<const T> values_for(const Context& context, WeightPass weight_pass,
                          const View1<const T>& vector) {
  if (weight_pass == WeightPass::now || vector.extent(0) == 0) return vector;
  const auto count = static_cast<index_t>(vector.extent(0));
  const auto kept = context.held.vector<T>(Category::norm, count);
  copy(context.exec, kept, vector);
  return kept;
}

}  // namespace trireme::nn

#endif  // TRIREME_NN_CONTEXT_HPP_

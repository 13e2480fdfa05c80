// model/gpt_chunk.hpp — a run of GPT's layers, none included, with the embedding before
// them on the first chunk and the head after them on the last (Radford et al. 2019:
// pre-LayerNorm, learned positions, tied head). What goes from chunk to chunk is the
// residual stream.
#ifndef TRIREME_MODEL_GPT_CHUNK_HPP_
#define TRIREME_MODEL_GPT_CHUNK_HPP_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/chunk.hpp"
#include "model/config.hpp"
#include "nn/lm_head.hpp"
#include "nn/transformer_layer.hpp"

namespace trireme::model {

// Layers [begin, end) of the model; embedding and head where they belong.
struct ChunkRange {
  index_t begin = 0;
  index_t end = 0;
  bool is_first = true;
  bool is_last = true;

  index_t layers() const { return end - begin; }
};

// Keys and values of all layers of a chunk while text is generated.
template <class T>
struct DecodeState {
  std::vector<nn::KvCache<T>> layers;
};

template <class T>
class GptChunk final : public Chunk<T> {
 public:
  GptChunk(const nn::Builder<T>& builder, const GptConfig& config,
           const ChunkRange& range);

  void set_slot_count(int slots) override;
  Boundary<T> boundary(const nn::Context& context) const override;
  PassUnits weight_units(Pass pass) const override;
  void forward(const nn::Context& context, int slot, const Batch& batch,
               const Boundary<T>& in, const Boundary<T>& out,
               View1<double> totals) override;
  void backward(const nn::Context& context, int slot, const Batch& batch,
                const Boundary<T>& d_out, const Boundary<T>& d_in,
                WeightPass weight_pass) override;
  void backward_weight(const nn::Context& context, int slot, const Batch& batch) override;

  // Generation (whole model in one chunk): context.sequence new tokens after those in
  // `state`; logits (n, v_tp) of the last n rows, as many as the View has (0: none).
  void decode(const nn::Context& context, View1<const std::int32_t> tokens,
              View1<const std::int32_t> positions, DecodeState<T>& state,
              View2<T> logits) const;
  // Elements of one layer's key (or value) cache for `positions` positions of a sample.
  index_t cache_columns() const;
  index_t layer_count() const { return range_.layers(); }
  // Columns of this rank's logits, padding included. Of the last chunk, as saved_logits.
  index_t vocabulary_tp() const { return head_->vocabulary_tp(); }
  const ChunkRange& range() const { return range_; }

  // The first of a slot's saved tensors, in the order of the forward pass, that has a
  // number that is not finite, e.g. "layers/5/mlp"; empty when there is none. Waits for
  // the device.
  std::string locate_non_finite(const nn::Context& context, int slot) const;

  // The logits of the last forward in a slot, for parity tests: (rows, v_tp).
  View2<T> saved_logits(int slot) const;

 private:
  struct Slot {
    View2<const T> input;                // of the first layer
    std::vector<View2<const T>> inputs;  // of every layer
    std::vector<typename nn::TransformerLayer<T>::Saved> layers;
    typename nn::LmHead<T>::Saved head;
    // For a weight pass that comes later.
    std::vector<typename nn::TransformerLayer<T>::Held> layers_held;
    typename nn::LmHead<T>::Held head_held;
    View2<T> d_embedded;
  };

  Slot& slot_at(int slot);
  template <class Run>
  void use_embedding(const nn::Context& context, Pass pass, const Run& run) const;
  template <class Run>
  void use_head(const nn::Context& context, Pass pass, const Run& run) const;
  static bool is_recomputed(const nn::Context& context, std::size_t layer) {
    return static_cast<index_t>(layer) < context.recompute.layers;
  }
  void recompute(const nn::Context& context, Slot& slot, std::size_t i) const;
  void require_boundaries(const nn::Context& context, const Boundary<T>& in,
                          const Boundary<T>& out) const;

  GptConfig config_;
  ChunkRange range_;
  std::size_t embedding_unit_ = 0, first_layer_unit_ = 0, head_unit_ = 0;
  std::size_t embedding_units_ = 0;  // from embedding_unit_
  std::optional<nn::Embedding<T>> embedding_;
  std::vector<nn::TransformerLayer<T>> layers_;
  std::optional<nn::LmHead<T>> head_;
  std::vector<Slot> slots_;
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_GPT_CHUNK_HPP_

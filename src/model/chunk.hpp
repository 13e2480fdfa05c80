// model/chunk.hpp — what a pipeline stage holds: one or more chunks, each a run of
// consecutive blocks of a model, the same for every kind of model.
//
// A chunk hands tensors from border to border, says when parameters come into use, makes
// layers' saved tensors again where that is asked for, and finds the first number that is
// not finite. What crosses its two ends lies in memory of the caller's.
//
// A tensor lives from the border behind the block that makes it to the border before the
// block that reads it last; borders of a chunk of n blocks are numbered 0 (its input) to
// n (its output). Worked example, a chunk of T5's decoder, blocks d1 and d2, with the
// encoder's output `e` passing by and the decoder's residual stream `h` made anew by
// each:
//
//   border        0          1          2
//   tensors      h0 e       h1 e       h2 e
//   lifetimes    h0: 0-0    h1: 1-1    h2: 2-2    e: 0-2
//
// e comes in and goes out: forward its values are copied from the input's memory to the
// output's; backward its gradient is copied the other way, and d2 and d1 add to it. h1
// stays within the chunk: its values lie in the slot's saved memory, its gradient in one
// of two areas of scratch memory, which neighbouring borders take in turns. What a block
// before the last makes is copied from saved memory where it goes out, because later
// blocks may want it again in the backward pass, when the output's memory is used anew.
#ifndef TRIREME_MODEL_CHUNK_HPP_
#define TRIREME_MODEL_CHUNK_HPP_

#include <optional>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "kernels/decode_layers.hpp"
#include "model/block.hpp"
#include "nn/context.hpp"
#include "tensor/param_use.hpp"

namespace trireme::model {

// Rows of a tensor at a border, on this rank; elements of all of a border's tensors; and
// the tensors, one behind the other in `memory` (null on shapes alone).
inline index_t rows_of(const nn::Context& context, const BorderTensor& tensor) {
  return context.on_stream(tensor.stream).local_rows();
}
inline index_t elements_of(const nn::Context& context, const Border& border) {
  index_t elements = 0;
  for (const BorderTensor& tensor : border) {
    elements += rows_of(context, tensor) * tensor.columns;
  }
  return elements;
}
template <class T>
Tensors<T> tensors_of(const nn::Context& context, const Border& border, T* memory) {
  Tensors<T> tensors;
  for (const BorderTensor& tensor : border) {
    const index_t rows = rows_of(context, tensor);
    tensors.push_back({memory, extent(rows), extent(tensor.columns)});
    if (memory != nullptr) memory += rows * tensor.columns;
  }
  return tensors;
}

// Keys and values of a chunk's layers while text is generated: of each block that has
// columns for them, or for a source's, in order.
template <class T>
struct DecodeState {
  std::vector<nn::KvCache<T>> caches;
  // Blocks [begin, end), which a step takes in one launch, where there is one.
  struct Launch {
    kernels::DecodeLayers<T> layers;
    std::size_t begin = 0, end = 0;
  };
  std::optional<Launch> launch = {};
};

template <class T>
class Chunk {
 public:
  // The blueprint must outlive the chunk. `tables`: of its stage, whose chunks are made
  // in order; null where it is the only one.
  Chunk(const nn::Builder<T>& builder, const Blueprint& blueprint,
        const BlockRange& range, BlockMaker<T> make = &make_block<T>,
        Tables<T>* tables = nullptr);

  const BlockRange& range() const { return range_; }
  // The borders at the chunk's two ends.
  const Border& border_in() const { return blueprint_.border_before(range_.begin); }
  const Border& border_out() const { return blueprint_.blocks[range_.end - 1].border; }

  // Sets how many slots there are, where more than one; called once, before the first
  // forward.
  void set_slot_count(int slots);
  // The units whose weights a forward or backward pass reads, without those borrowed.
  PassUnits weight_units(Pass pass) const;

  // Computes `out` from `in`, which must stay until the last pass of the micro-batch.
  // Blocks with an objective add to context.totals, and where the context
  // takes_gradients() perhaps to gradients (BlockSpec::gradients_in_forward).
  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>& out);
  // Computes d_in, the gradients of `in`, from d_out, those of `out`, which are changed
  // where they pass by. With WeightPass::later, backward_weight() must follow with the
  // same context.held; it needs neither d_in nor d_out.
  void backward(const nn::Context& context, int slot, const Tensors<T>& d_out,
                const Tensors<T>& d_in, WeightPass weight_pass);
  void backward_weight(const nn::Context& context, int slot);

  // Generation (whole model in one chunk): context.sequence() new tokens after those in
  // `state`; logits (n, v_tp) of the last n rows, as many as the View has (0: none).
  void decode(const nn::Context& context, DecodeState<T>& state, View2<T> logits);
  // Before a text's first words: what `state` keeps of its source, one sample. Of other
  // streams than the source's the context has no rows; in decode() of others than the
  // text's.
  void begin_text(const nn::Context& context, DecodeState<T>& state);
  // Finds what of a step is one launch on this device, for caches of so many positions a
  // place. Weights and caches must stay where they are.
  void join_layers(const Exec& exec, index_t capacity, DecodeState<T>& state) const;
  // Columns of each of a DecodeState's caches: of one position of a sample, and of its
  // source.
  std::vector<index_t> cache_columns() const;
  std::vector<index_t> source_columns() const;
  // Whether all blocks that decode can do so while words are drawn on the device.
  bool can_draw() const;
  // Columns of this rank's logits, padding included. Of the last chunk, as
  // logits_again().
  index_t logit_columns() const { return blocks_.back()->logit_columns(); }
  // Logits of a slot's last forward pass, once more (Block::logits_again).
  View2<T> logits_again(const nn::Context& context, int slot,
                        const View2<T>& memory) const;

  // After a forward pass that took no gradients: the first of a slot's tensors, in the
  // order of the forward pass, that has a number that is not finite, e.g.
  // "layers/5/mlp/fc2"; empty when there is none, or it came in: the chunk that made it
  // finds it. To be asked before what goes out has gone. Waits for the device.
  std::string locate_non_finite(const nn::Context& context, int slot) const;

 private:
  // A tensor of the chunk, from border `first` to border `last`.
  struct Lifetime {
    BorderTensor tensor;
    std::size_t first = 0, last = 0;
  };
  struct Units {
    std::size_t begin = 0, end = 0;
  };
  using Ids = std::vector<std::size_t>;  // of lifetimes
  using Values = std::vector<View2<T>>;  // by lifetime

  const BlockSpec& spec(std::size_t i) const {
    return blueprint_.blocks[range_.begin + i];
  }
  // Of blocks that decode. Others may be of a class that could.
  bool has_cache(std::size_t i) const {
    return spec(i).stream == blueprint_.text_stream() &&
           (blocks_[i]->cache_columns() > 0 || blocks_[i]->source_columns() > 0);
  }
  bool reads_source(std::size_t i) const;
  void require_generation(const nn::Context& context) const;
  std::size_t size() const { return blocks_.size(); }
  bool comes_in(const Lifetime& life) const { return life.first == 0; }
  bool goes_out(const Lifetime& life) const { return life.last == size(); }
  void register_copies(const nn::Builder<T>& builder, Tables<T>& tables);
  void register_owned(const nn::Builder<T>& builder, Tables<T>& tables,
                      std::size_t block) const;
  void find_lifetimes();
  bool is_recomputed(const nn::Context& context, std::size_t block) const;
  Values& values_of(int slot);
  const Values& values_of(int slot) const;
  Tensors<T> listed(const Values& values, const Ids& ids) const;
  View2<T> take(const nn::Context& context, Arena& arena, Category category,
                const BorderTensor& tensor) const;
  void take_scratch(const nn::Context& context, Category category, Values& values) const;
  void require_fields(const nn::Context& context) const;
  void require_ends(const nn::Context& context, const Tensors<T>& in,
                    const Tensors<T>& out) const;
  template <class Run>
  void use(const nn::Context& context, std::size_t block, Pass pass,
           const Run& run) const;
  void run_block(const nn::Context& context, int slot, const Values& values,
                 std::size_t block);
  void recompute(const nn::Context& context, int slot, std::size_t block);
  void pass_branch_gradient(const nn::Context& context, int slot, std::size_t block,
                            WeightPass weight_pass, Arena& memory);

  const Blueprint& blueprint_;
  BlockRange range_;
  std::vector<std::size_t> fields_;  // of the batch, that its blocks read
  std::vector<std::unique_ptr<Block<T>>> blocks_;
  std::vector<Units> units_;                // of each block
  std::vector<std::size_t> layers_before_;  // of each block, in this chunk
  struct Copy {                             // of a table whose owner is not here
    std::size_t unit = 0;
    std::size_t first = 0, last = 0;  // blocks that use it
  };
  std::vector<Copy> copies_;
  std::vector<Lifetime> lifetimes_;
  std::vector<Ids> borders_;
  std::vector<Ids> reads_, makes_;  // of each block, in the order of its spec
  std::vector<Values> slots_;
  Values gradients_;  // of the pass under way; kept, so as not to allocate
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_CHUNK_HPP_

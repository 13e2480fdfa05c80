// model/block.hpp — one part of a model: a layer, or what stands before and behind the
// layers. The one interface that chunks know.
//
// A micro-batch passes a block forward and backward in a *slot*, where the block keeps
// what its backward pass needs, in whatever form it likes: Views into context.saved, from
// the forward pass on, and into context.held, from backward_input to backward_weight.
#ifndef TRIREME_MODEL_BLOCK_HPP_
#define TRIREME_MODEL_BLOCK_HPP_

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/exec.hpp"
#include "kernels/accumulate.hpp"
#include "kernels/decode_layers.hpp"
#include "kernels/step_state.hpp"
#include "model/blueprint.hpp"
#include "nn/attention.hpp"
#include "nn/context.hpp"
#include "nn/embedding.hpp"
#include "nn/norm.hpp"
#include "tensor/arena.hpp"
#include "tensor/param_registry.hpp"

namespace trireme::model {

using nn::WeightPass;

// Tensors of a border, or their gradients: all of it for a chunk, in the border's order;
// for a block those that it reads or makes, in the order of BlockSpec::reads and makes.
template <class T>
class Tensors {
 public:
  std::size_t size() const { return count_; }
  void push_back(const View2<T>& tensor) { tensors_.at(count_++) = tensor; }
  const View2<T>& operator[](std::size_t i) const { return tensors_.at(i); }

 private:
  std::size_t count_ = 0;
  std::array<View2<T>, kMostBorderTensors> tensors_;
};

// Whether numbers in device memory are finite; each question waits for the device.
template <class T>
class FiniteCheck {
 public:
  explicit FiniteCheck(const Exec& exec) : exec_(exec), count_("non-finite values", 1) {}
  bool is_bad(const View2<const T>& view) const {
    return is_bad(View1<const T>(view.data(), view.size()));
  }
  bool is_bad(const View1<const T>& view) const;

 private:
  const Exec& exec_;
  DeviceArray<std::int64_t> count_;
};

template <class T>
class Block {
 public:
  virtual ~Block() = default;

  // Slots there are; called once, before the first forward.
  virtual void set_slot_count(int slots) = 0;

  // Makes `out` of `in`, which stays until backward_weight(). What passes it by in the
  // borders is not its affair. Where its spec says gradients_in_forward and the context
  // takes_gradients(), it adds to the gradient of its table, too.
  virtual void forward(const nn::Context& context, int slot, const Tensors<T>& in,
                       const Tensors<T>& out) = 0;
  // Computes the gradients of what it reads from those of what it makes. It writes d_in
  // where a tensor ends here, and adds to it where the tensor passes by. With
  // WeightPass::now it adds the weight gradients, too; else backward_weight() follows
  // with the same context.held, and needs neither d_in nor d_out.
  virtual void backward_input(const nn::Context& context, int slot,
                              const Tensors<T>& d_out, const Tensors<T>& d_in,
                              WeightPass weight_pass) = 0;
  virtual void backward_weight(const nn::Context& context, int slot) = 0;

  // A block that ends with an addition to a residual stream may leave what it wants made
  // of the gradient of its output to the block behind, whose backward_input() writes that
  // gradient. Chunks ask the one for it, give it memory that lives until its weight
  // gradients are taken, and tell the other before its backward_input() of the slot.
  virtual nn::BranchGradient<T> leave_branch_gradient(const nn::Context&, int, WeightPass,
                                                      Arena&) {
    return {};
  }
  virtual bool makes_branch_gradients() const { return false; }
  virtual void make_branch_gradient(int, const nn::BranchGradient<T>&) {}

  // Generation, without a slot, by blocks on the text's stream: new rows behind those in
  // `cache` (null where it has no columns). The last block's `out` is the logits, (n,
  // v_tp), of the last n rows. Of a text that is made from a source, blocks on that one's
  // stream have run forward() before, and what those on the text's stream read of it they
  // have taken to their cache in begin_text(): decode() finds no rows of it.
  virtual void decode(const nn::Context&, nn::KvCache<T>*, const Tensors<T>&,
                      const Tensors<T>&) const {
    throw Error("text is generated with a block that knows of none");
  }
  virtual void begin_text(const nn::Context&, nn::KvCache<T>&,
                          const Tensors<T>& /*in*/) const {
    throw Error("text is generated from a source with a block that knows of none");
  }
  // What decode() of a position of each text takes of a layer that may be one of several
  // of a launch, whose input and output are its only tensors.
  virtual std::optional<kernels::DecodeLayer<T>> decode_layer(
      const nn::KvCache<T>&) const {
    return {};
  }
  // The matrix that logits are made by, which decode() reads whole.
  virtual View2<const T> logit_weights() const { return {}; }
  // Columns of its cache of keys (and of values), and of that of the source's; of the
  // logits that it makes.
  virtual index_t cache_columns() const { return 0; }
  virtual index_t source_columns() const { return 0; }
  virtual index_t logit_columns() const { return 0; }
  // Whether decode() of a position of each text reads all that changes from step to step
  // on the device, and passes by rows without a text: then words may be drawn there.
  virtual bool can_draw() const { return false; }
  // The logits of a slot's last forward pass, which took no gradients, once more, for
  // tests: made in `memory` (rows, v_tp); what is returned has the real words alone, with
  // padding between the rows.
  virtual View2<T> logits_again(const nn::Context&, int, const View2<T>&) const {
    return {};
  }

  // The first tensor that a forward pass without gradients has left in a slot, in the
  // order of that pass, that has a number that is not finite, e.g. "layers/5/mlp/fc1";
  // empty when there is none. The borders are looked at by the chunk.
  virtual std::string locate_non_finite(const nn::Context& context,
                                        const FiniteCheck<T>& check, int slot) const = 0;
};

// Shared tables that the chunks of a stage have registered so far, by name.
template <class T>
struct Tables {
  struct Table {
    ParamRef<T> weight;
    std::optional<nn::VocabParallelEmbedding<T>> words;  // of one that is cut by words
    std::size_t unit = 0;                                // of the registry, that it is in
  };
  // Registers one in a unit of its own, which is returned.
  std::size_t add(const nn::Builder<T>& builder, const SharedTable& table,
                  const std::vector<std::size_t>& users, Tie tie);

  std::vector<BlockRange> chunks;  // of the stage
  std::map<std::string, Table> by_name = {};
};

// What a block is made from.
template <class T>
struct Making {
  const nn::Builder<T>& builder;
  const Blueprint& blueprint;
  std::size_t block;
  const Tables<T>& tables;

  const BlockSpec& spec() const { return blueprint.blocks[block]; }
  // The objective that the block makes, as its loss kernel wants it.
  kernels::ObjectiveScale objective() const {
    const int index = spec().objective;
    return {index, blueprint.objectives.at(extent(index)).weight};
  }
  const typename Tables<T>::Table& table() const {
    return tables.by_name.at(spec().table);
  }
  const nn::VocabParallelEmbedding<T>& words() const {
    TRIREME_REQUIRE(table().words.has_value(),
                    "'{}', which '{}' uses, is no table of words", spec().table,
                    spec().name);
    return *table().words;
  }
};

// The builder, with a unit begun that has the block's name, and uses its table if there
// is one.
template <class T>
const nn::Builder<T>& begin_unit_of_block(const Making<T>& making) {
  const bool has_table = !making.spec().table.empty();
  making.builder.registry.begin_unit(
      making.spec().name,
      has_table ? std::optional<std::size_t>(making.table().unit) : std::nullopt);
  return making.builder;
}

// How a block's gradient of what it reads goes to `d_in`: a tensor that passes by has one
// already.
template <class T>
kernels::Accumulate accumulate_of(const Making<T>& making, std::size_t read) {
  return making.spec().passes(making.spec().reads[read]) ? kernels::Accumulate::yes
                                                         : kernels::Accumulate::no;
}

// Makes a block: registers its parameters, the units of which it begins itself. Its table
// is there; that of an owner is the registry's last unit. model::make_block knows the
// program's kinds of block; tests bring their own.
template <class T>
using BlockMaker = std::unique_ptr<Block<T>> (*)(const Making<T>& making);

template <class T>
std::unique_ptr<Block<T>> make_block(const Making<T>& making);
// The parts of it that kinds of models have to themselves; null where a block is none of
// theirs.
template <class T>
std::unique_ptr<Block<T>> make_bert_block(const Making<T>& making);
template <class T>
std::unique_ptr<Block<T>> make_t5_block(const Making<T>& making);

}  // namespace trireme::model

#endif  // TRIREME_MODEL_BLOCK_HPP_

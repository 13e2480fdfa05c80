// model/word_blocks.hpp — the two ends of a model as blocks: what makes words into rows,
// and the head that predicts words. The form is the maker's, who knows the kind of model.
#ifndef TRIREME_MODEL_WORD_BLOCKS_HPP_
#define TRIREME_MODEL_WORD_BLOCKS_HPP_

#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"
#include "kernels/step_state.hpp"
#include "model/block.hpp"
#include "nn/embedding.hpp"
#include "nn/lm_head.hpp"
#include "tensor/arena.hpp"

namespace trireme::model {

// The first field is that of the words; a field of types, where the form has some, is
// called "token_types".
template <class T>
class EmbeddingBlock final : public Block<T> {
 public:
  EmbeddingBlock(const Making<T>& making, const nn::EmbeddingForm& form)
      : tokens_(making.blueprint.batch.field(making.spec().fields.at(0))),
        has_places_(form.places > 0),
        embedding_(begin_unit(making, form), form, making.words()) {
    if (form.types > 0) types_ = making.blueprint.batch.field("token_types");
  }

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>&,
               const Tensors<T>& out) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    embedding_.forward(context, ids(context), out[0], slots_.at(extent(slot)).saved);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>& d_out,
                      const Tensors<T>&, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    View2<T>& kept = slots_.at(extent(slot)).d_out;
    kept = d_out[0];
    if (weight_pass == WeightPass::now) {
      backward_weight(context, slot);
      return;
    }
    kept = context.held.matrix<T>(Category::gradient, context.local_rows(),
                                  static_cast<index_t>(kept.extent(1)));
    copy(context.exec, kept, d_out[0]);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    const Slot& of = slots_.at(extent(slot));
    embedding_.backward_weight(context, ids(context), nn::as_const(of.d_out), of.saved);
  }
  void decode(const nn::Context& context, nn::KvCache<T>*, const Tensors<T>&,
              const Tensors<T>& out) const override {
    const ComponentRegion region(context.exec.timers(), Component::embedding);
    const ArenaScope statistics(*context.saved);
    typename nn::Embedding<T>::Saved unused;
    embedding_.forward(context, ids(context), out[0], unused);
  }
  bool can_draw() const override { return true; }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>&,
                                int) const override {
    return {};  // what it makes is looked at by the chunk
  }

 private:
  struct Slot {
    typename nn::Embedding<T>::Saved saved;
    View2<T> d_out;  // for the weight pass
  };

  // Its own parameters are in the table's unit, which is the registry's last for the
  // table's owner alone. Where other stages use the table as well it is cut alike
  // everywhere, so alone in its unit, and they begin another.
  static const nn::Builder<T>& begin_unit(const Making<T>& making,
                                          const nn::EmbeddingForm& form) {
    const Blueprint& blueprint = making.blueprint;
    const BlockSpec& spec = making.spec();
    ParamRegistry& registry = making.builder.registry;
    const bool is_owner =
        blueprint.users(blueprint.table(spec.table)).front() == making.block;
    const bool is_shared = making.table().weight.spec().tie != Tie::none;
    const bool has_own = form.places > 0 || form.types > 0 || form.norm.has_value();
    TRIREME_REQUIRE(is_owner || !has_own,
                    "block '{}' embeds words by table '{}', which is another block's: an "
                    "embedding with positions must own its table",
                    spec.name, spec.table);
    if (!is_owner) {
      registry.begin_unit(spec.name, making.table().unit);
    } else if (is_shared && has_own) {
      registry.begin_unit("position");
    }
    return making.builder;
  }
  typename nn::Embedding<T>::Ids ids(const nn::Context& context) const {
    typename nn::Embedding<T>::Ids ids{context.ids(tokens_)};
    if (has_places_) ids.positions = context.positions(context.stream);
    if (types_) ids.types = context.ids(*types_);
    return ids;
  }

  std::size_t tokens_;  // field
  bool has_places_;
  std::optional<std::size_t> types_;  // field
  nn::Embedding<T> embedding_;
  std::vector<Slot> slots_;
};

// The index of a field of the block's objective.
template <class T>
std::size_t field_of_objective(const Making<T>& making, std::string Objective::*name) {
  const Blueprint& blueprint = making.blueprint;
  return blueprint.batch.field(blueprint.objectives[extent(making.spec().objective)].*
                               name);
}

template <class T>
class HeadBlock final : public Block<T> {
 public:
  HeadBlock(const Making<T>& making, const nn::LmHeadForm& form)
      : objective_(making.objective()),
        labels_(field_of_objective(making, &Objective::labels)),
        mask_(field_of_objective(making, &Objective::mask)),
        head_(begin_unit_of_block(making), form, making.words(), objective_) {
    TRIREME_REQUIRE(making.spec().gradients_in_forward,
                    "block '{}' takes its gradients in the forward pass, and its "
                    "blueprint does not say so",
                    making.spec().name);
  }

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.forward(context, in[0], context.ids(labels_), context.weights(mask_),
                  context.totals_of(objective_.index), slots_.at(extent(slot)));
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>&,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.backward_input(context, slots_.at(extent(slot)), d_in[0], weight_pass);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.backward_weight(context, slots_.at(extent(slot)));
  }
  void decode(const nn::Context& context, nn::KvCache<T>*, const Tensors<T>& in,
              const Tensors<T>& out) const override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    const auto rows = static_cast<index_t>(in[0].extent(0));
    const auto wanted = static_cast<index_t>(out[0].extent(0));
    const auto columns = static_cast<index_t>(in[0].extent(1));
    // A shape-only pass has a null input, and no address is computed from null.
    const T* const last =
        in[0].data() == nullptr ? nullptr : in[0].data() + (rows - wanted) * columns;
    head_.logits(context, View2<const T>(last, out[0].extent(0), in[0].extent(1)),
                 out[0]);
  }
  View2<const T> logit_weights() const override { return head_.logit_weights(); }
  index_t logit_columns() const override { return head_.vocabulary_tp(); }
  bool can_draw() const override { return true; }
  View2<T> logits_again(const nn::Context& context, int slot,
                        const View2<T>& memory) const override {
    return head_.logits_again(context, slots_.at(extent(slot)), memory);
  }
  // A row of logits that has NaN or plus infinity has a loss that is not finite. Minus
  // infinity is the probability zero, and no fault unless the label has it.
  std::string locate_non_finite(const nn::Context& context, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot));
    if (check.is_bad(saved.words.x)) return "final_norm";
    const FiniteCheck<Accumulator<T>> check_losses(context.exec);
    return check_losses.is_bad(saved.words.loss) ? "logits" : "";
  }

 private:
  kernels::ObjectiveScale objective_;
  std::size_t labels_, mask_;  // fields
  nn::LmHead<T> head_;
  std::vector<typename nn::LmHead<T>::Saved> slots_;
};

}  // namespace trireme::model

#endif  // TRIREME_MODEL_WORD_BLOCKS_HPP_

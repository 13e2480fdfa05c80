// model/bert_blocks.cpp — BERT's two heads as blocks: the masked words, and whether a
// pair of segments is what it seems.
//
// Both read the last layer's output, from which each takes a few rows. Its gradient is
// written by the one behind which it ends, with zeros for the rows that nobody took, and
// the other adds its few rows to that.
#include <optional>
#include <string>
#include <vector>

#include "base/timers.hpp"
#include "base/types.hpp"
#include "kernels/step_state.hpp"
#include "model/block.hpp"
#include "model/layer_blocks.hpp"
#include "model/word_blocks.hpp"
#include "nn/layer_form.hpp"
#include "nn/masked_head.hpp"
#include "nn/pair_head.hpp"

namespace trireme::model {

namespace {

nn::MaskedHeadForm masked_head_form(const Architecture& a) {
  return {.hidden = a.hidden,
          .activation = nn::mlp_form(a).activation,
          .norm = nn::norm_form(a),
          .init_std = a.init_std};
}

template <class T>
class MaskedHeadBlock final : public Block<T> {
 public:
  explicit MaskedHeadBlock(const Making<T>& making)
      : name_(making.spec().name),
        positions_(making.blueprint.batch.field("masked_positions")),
        labels_(field_of_objective(making, &Objective::labels)),
        mask_(field_of_objective(making, &Objective::mask)),
        objective_(making.objective()),
        to_hidden_(accumulate_of(making, 0)),
        head_(begin_unit_of_block(making), name_,
              masked_head_form(making.blueprint.architecture), making.words(),
              objective_) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.forward(context, in[0], fields(context), context.totals_of(objective_.index),
                  slots_.at(extent(slot)).saved);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>&,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    Slot& of = slots_.at(extent(slot));
    head_.backward_input(context, fields(context), of.saved, to_hidden_, d_in[0],
                         of.held);
    if (weight_pass == WeightPass::now) head_.backward_weight(context, of.saved, of.held);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    const Slot& of = slots_.at(extent(slot));
    head_.backward_weight(context, of.saved, of.held);
  }
  index_t logit_columns() const override { return head_.vocabulary_tp(); }
  View2<T> logits_again(const nn::Context& context, int slot,
                        const View2<T>& memory) const override {
    return head_.logits_again(context, slots_.at(extent(slot)).saved, memory);
  }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot)).saved;
    if (check.is_bad(saved.pre_activation)) return name_ + "/dense";
    if (check.is_bad(saved.activation)) return name_ + "/dense";
    if (check.is_bad(saved.words.x)) return name_ + "/norm";
    return "";
  }

 private:
  struct Slot {
    typename nn::MaskedHead<T>::Saved saved;
    typename nn::MaskedHead<T>::Held held;
  };
  typename nn::MaskedHead<T>::Fields fields(const nn::Context& context) const {
    return {context.ids(positions_), context.ids(labels_), context.weights(mask_)};
  }

  std::string name_;
  std::size_t positions_, labels_, mask_;  // fields
  kernels::ObjectiveScale objective_;
  kernels::Accumulate to_hidden_;
  nn::MaskedHead<T> head_;
  std::vector<Slot> slots_;
};

template <class T>
class PairHeadBlock final : public Block<T> {
 public:
  explicit PairHeadBlock(const Making<T>& making)
      : name_(making.spec().name),
        labels_(making.blueprint.batch.field("pair_labels")),
        mask_(field_of_objective(making, &Objective::mask)),
        objective_(making.objective()),
        to_hidden_(accumulate_of(making, 0)),
        head_(begin_unit_of_block(making), name_,
              {.hidden = making.blueprint.architecture.hidden,
               .init_std = making.blueprint.architecture.init_std},
              objective_) {}

  void set_slot_count(int slots) override { slots_.resize(extent(slots)); }

  void forward(const nn::Context& context, int slot, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    head_.forward(context, in[0], context.ids(labels_), context.weights(mask_),
                  context.totals_of(objective_.index), slots_.at(extent(slot)).saved);
  }
  void backward_input(const nn::Context& context, int slot, const Tensors<T>&,
                      const Tensors<T>& d_in, WeightPass weight_pass) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    Slot& of = slots_.at(extent(slot));
    head_.backward_input(context, context.ids(labels_), context.weights(mask_), of.saved,
                         to_hidden_, d_in[0], of.held);
    if (weight_pass == WeightPass::now) head_.backward_weight(context, of.saved, of.held);
  }
  void backward_weight(const nn::Context& context, int slot) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    const Slot& of = slots_.at(extent(slot));
    head_.backward_weight(context, of.saved, of.held);
  }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = slots_.at(extent(slot)).saved;
    if (check.is_bad(saved.p)) return name_ + "/pooler";
    return check.is_bad(saved.logits) ? name_ + "/classifier" : "";
  }

 private:
  struct Slot {
    typename nn::PairHead<T>::Saved saved;
    typename nn::PairHead<T>::Held held;
  };

  std::string name_;
  std::size_t labels_, mask_;  // fields
  kernels::ObjectiveScale objective_;
  kernels::Accumulate to_hidden_;
  nn::PairHead<T> head_;
  std::vector<Slot> slots_;
};

}  // namespace

template <class T>
std::unique_ptr<Block<T>> make_bert_block(const Making<T>& making) {
  const std::string& kind = making.spec().kind;
  if (kind == "masked_head") return std::make_unique<MaskedHeadBlock<T>>(making);
  if (kind == "pair_head") return std::make_unique<PairHeadBlock<T>>(making);
  return nullptr;
}

#define TRIREME_INSTANTIATE(T) \
  template std::unique_ptr<Block<T>> make_bert_block<T>(const Making<T>&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model

// model/bert_blocks.cpp — BERT's two heads as blocks: the masked words, and whether a
// pair of segments is what it seems; and what stands in their place where a trained model
// is used.
//
// Both heads read the last layer's output, from which each takes a few rows. Its gradient
// is written by the one behind which it ends, with zeros for the rows that nobody took,
// and the other adds its few rows to that.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/timers.hpp"
#include "base/types.hpp"
#include "kernels/gather_rows.hpp"
#include "kernels/step_state.hpp"
#include "model/block.hpp"
#include "model/layer_blocks.hpp"
#include "model/word_blocks.hpp"
#include "nn/layer_form.hpp"
#include "nn/mappings.hpp"
#include "nn/masked_head.hpp"
#include "nn/pair_head.hpp"
#include "tensor/arena.hpp"

namespace trireme::model {

namespace {

nn::MaskedHeadForm masked_head_form(const Architecture& a) {
  return {.hidden = a.hidden,
          .activation = nn::mlp_form(a).activation,
          .norm = nn::norm_form(a),
          .init_std = a.init_std};
}

// A head that reads the last layer's output and makes an objective: what both have. Which
// fields of the batch it reads, and what of it may not be finite, is each one's own.
template <class T, class Head>
class LossHeadBlock : public Block<T> {
 public:
  template <class... Arguments>
  explicit LossHeadBlock(const Making<T>& making, const Arguments&... arguments)
      : name_(making.spec().name),
        objective_(making.objective()),
        to_hidden_(accumulate_of(making, 0)),
        head_(begin_unit_of_block(making), name_, arguments..., objective_) {}

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

 protected:
  virtual typename Head::Fields fields(const nn::Context& context) const = 0;
  const std::string& name() const { return name_; }
  const Head& head() const { return head_; }
  const typename Head::Saved& saved(int slot) const {
    return slots_.at(extent(slot)).saved;
  }

 private:
  struct Slot {
    typename Head::Saved saved;
    typename Head::Held held;
  };

  std::string name_;
  kernels::ObjectiveScale objective_;
  kernels::Accumulate to_hidden_;
  Head head_;
  std::vector<Slot> slots_;
};

template <class T>
class MaskedHeadBlock final : public LossHeadBlock<T, nn::MaskedHead<T>> {
 public:
  explicit MaskedHeadBlock(const Making<T>& making)
      : LossHeadBlock<T, nn::MaskedHead<T>>(
            making, masked_head_form(making.blueprint.architecture), making.words()),
        positions_(making.blueprint.batch.field("masked_positions")),
        labels_(field_of_objective(making, &Objective::labels)),
        mask_(field_of_objective(making, &Objective::mask)) {}

  index_t logit_columns() const override { return this->head().vocabulary_tp(); }
  View2<T> logits_again(const nn::Context& context, int slot,
                        const View2<T>& memory) const override {
    return this->head().logits_again(context, this->saved(slot), memory);
  }
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = this->saved(slot);
    if (check.is_bad(saved.pre_activation) || check.is_bad(saved.activation)) {
      return this->name() + "/dense";
    }
    return check.is_bad(saved.words.x) ? this->name() + "/norm" : "";
  }

 private:
  typename nn::MaskedHead<T>::Fields fields(const nn::Context& context) const override {
    return {context.ids(positions_), context.ids(labels_), context.weights(mask_)};
  }

  std::size_t positions_, labels_, mask_;  // fields
};

template <class T>
class PairHeadBlock final : public LossHeadBlock<T, nn::PairHead<T>> {
 public:
  explicit PairHeadBlock(const Making<T>& making)
      : LossHeadBlock<T, nn::PairHead<T>>(
            making, nn::PairHeadForm{.hidden = making.blueprint.architecture.hidden,
                                     .init_std = making.blueprint.architecture.init_std}),
        labels_(making.blueprint.batch.field("pair_labels")),
        mask_(field_of_objective(making, &Objective::mask)) {}

  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>& check,
                                int slot) const override {
    const auto& saved = this->saved(slot);
    if (check.is_bad(saved.p)) return this->name() + "/pooler";
    return check.is_bad(saved.logits) ? this->name() + "/classifier" : "";
  }

 private:
  typename nn::PairHead<T>::Fields fields(const nn::Context& context) const override {
    return {context.ids(labels_), context.weights(mask_)};
  }

  std::size_t labels_, mask_;  // fields
};

// A block of a model that is made for its output has no other pass.
template <class T>
class OutputBlock : public Block<T> {
 public:
  void set_slot_count(int) override {}
  void backward_input(const nn::Context&, int, const Tensors<T>&, const Tensors<T>&,
                      WeightPass) override {
    throw Error("the output of a model has no gradient");
  }
  void backward_weight(const nn::Context&, int) override {}
  std::string locate_non_finite(const nn::Context&, const FiniteCheck<T>&,
                                int) const override {
    return {};  // whoever takes the output looks at it
  }
};

// Vectors of texts: of each the mean of its rows, and then its first row.
template <class T>
class PoolBlock final : public OutputBlock<T> {
 public:
  explicit PoolBlock(const Making<T>& making)
      : lengths_(making.blueprint.batch.field("lengths")) {}

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    const ArenaScope scope(context.scratch);
    const auto x =
        nn::gather_rows(context, nn::as_const(in[0]), context.scratch, "rows of texts");
    const index_t b = context.samples(), h = static_cast<index_t>(x.extent(1));
    const auto mean = context.scratch.matrix<T>(Category::hidden, b, h);
    kernels::mean_rows<T>(context.exec, context.ids(lengths_), x, mean);
    const auto columns = [&](index_t begin) {
      return View2<float>(Kokkos::subview(context.output, Kokkos::ALL,
                                          std::pair<index_t, index_t>(begin, begin + h)));
    };
    kernels::copy_rows_as_float<T>(context.exec, nn::as_const(mean), columns(0));
    const View2<const T> first(x.data(), extent(b), x.extent(1));
    kernels::copy_rows_as_float<T>(context.exec, first, columns(h));
  }

 private:
  std::size_t lengths_;  // field
};

// Logits of all words at some positions.
template <class T>
class MaskedWordsBlock final : public OutputBlock<T> {
 public:
  explicit MaskedWordsBlock(const Making<T>& making)
      : positions_(making.blueprint.batch.field("masked_positions")),
        head_(begin_unit_of_block(making), making.spec().name,
              masked_head_form(making.blueprint.architecture), making.words()) {}

  void forward(const nn::Context& context, int, const Tensors<T>& in,
               const Tensors<T>&) override {
    const ComponentRegion region(context.exec.timers(), Component::head);
    typename nn::MaskedHead<T>::Saved unused;
    head_.give_logits(context, in[0], context.ids(positions_), unused);
  }

 private:
  std::size_t positions_;  // field
  nn::MaskedHead<T> head_;
};

}  // namespace

template <class T>
std::unique_ptr<Block<T>> make_bert_block(const Making<T>& making) {
  const std::string& kind = making.spec().kind;
  if (kind == "masked_head") return std::make_unique<MaskedHeadBlock<T>>(making);
  if (kind == "pair_head") return std::make_unique<PairHeadBlock<T>>(making);
  if (kind == "pool") return std::make_unique<PoolBlock<T>>(making);
  if (kind == "masked_words") return std::make_unique<MaskedWordsBlock<T>>(making);
  return nullptr;
}

#define TRIREME_INSTANTIATE(T) \
  template std::unique_ptr<Block<T>> make_bert_block<T>(const Making<T>&);
TRIREME_FOR_EACH_REAL(TRIREME_INSTANTIATE)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
